"""Runs OpenAI's JavaScript client in a page of another origin. Needs Chromium, and the clients of ``make clients``."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import Page, chromium, needs_browser
from tests.support.worker_server import talking_target, working

PACKAGE = Path(__file__).parents[2] / ".venv-clients/node_modules/openai"
PAGE = """<!doctype html><title>page</title><output></output><script type="module">
import OpenAI from "./openai/index.mjs";
const client = new OpenAI({ baseURL: "%s/v1", apiKey: "none", dangerouslyAllowBrowser: true, maxRetries: 0 });
let text = "";
try {
  const asked = { model: "tiny", messages: [{ role: "user", content: "abc" }], max_tokens: 5, stream: true };
  const { data, request_id } = await client.chat.completions.create(asked).withResponse();
  let chunks = 0;
  for await (const chunk of data) chunks += chunk.choices.length;
  text = chunks > 1 && request_id ? "passed" : "no chunks";
} catch (error) {
  text = `failed: ${error}`;
}
document.querySelector("output").textContent = text;
</script>"""


class Files(SimpleHTTPRequestHandler):
    """Files of a folder, without a log."""

    extensions_map = SimpleHTTPRequestHandler.extensions_map | {".mjs": "text/javascript"}

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def files(folder: Path) -> Iterator[str]:
    """Serves ``folder``; yields the address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@needs_browser
@pytest.mark.skipif(not PACKAGE.exists(), reason="needs the clients: make clients")
def test_a_page_of_an_allowed_origin_streams_with_openais_client(tmp_path: Path) -> None:
    (tmp_path / "openai").symlink_to(PACKAGE.resolve())
    with files(tmp_path) as origin, working(talking_target(), cors_origins=(origin,)) as server:
        (tmp_path / "page.html").write_text(PAGE % f"http://{server.http}")
        with chromium(tmp_path / "profile") as browser:
            page = Page(browser)
            page.open(f"{origin}/page.html")
            assert page.until(lambda: page.text("output")) == "passed", page.messages()
