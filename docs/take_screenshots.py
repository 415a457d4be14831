"""Takes the pictures of web pages from real runs: SmolLM2 and the datastore of 'make demo'.

python -m docs.take_screenshots                # after 'make demo', on a quiet machine; needs Chromium and its driver
python -m docs.take_screenshots datastore      # only the picture of docs/how-to/serve.md; "worker": of docs/how-to/playground.md
"""

from __future__ import annotations

import base64
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from suffolk.benchmarks.demo.model import fetch_model
from suffolk.benchmarks.demo.run import python_store
from tests.support.browser import Page, chromium
from tests.support.processes import ENVIRONMENT, running

CACHE = Path(".cache")  # where 'make demo' keeps its files
PLOTS = Path(__file__).parent / "plots"
THREADS = "1"  # the browser needs the other core
WARM_UP = "Write a haiku about horses."
PROMPT = "Write a Python class Stack with the methods push, pop, peek and is_empty."
TOKENS = 180
TYPED = "# my tools\nimport os\nimport sys\n"


def main() -> None:
    model = fetch_model(CACHE / "models")
    store = python_store(CACHE, str(model))
    ENVIRONMENT["OMP_NUM_THREADS"] = THREADS
    if "worker" in (sys.argv[1:] or ["worker"]):
        take_worker(model, store)
    if "datastore" in (sys.argv[1:] or ["datastore"]):
        take_datastore(store)


@contextmanager
def opened(*words: str) -> Iterator[Page]:
    """The page of a server."""
    with (
        running(*words, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0") as server,
        tempfile.TemporaryDirectory() as profile,
        chromium(Path(profile)) as browser,
    ):
        page = Page(browser)
        page.open(f"http://{server.endpoint('http')}/")
        yield page


def take_datastore(store: Path) -> None:
    with opened("serve", f"python={store}") as page:
        page.until(lambda: page.all("#store option"))
        for text in ("import", TYPED):  # the first look-up reads the tokenizer
            page.write("#text", text)
            page.until(lambda: page.all("#results[aria-busy=false]:not([hidden])"))
        take(page, PLOTS / "datastore_page.png", "body", ".places li:nth-child(2)")


def take_worker(model: Path, store: Path) -> None:
    options = ("--model", str(model), "--datastore", f"{store}", "--set", "recycle=true", "--slots", "1")
    with opened("worker", *options) as page:
        page.until(lambda: page.text("#model"))
        page.write("#tokens", str(TOKENS))
        for prompt in (WARM_UP, PROMPT):
            page.write("#prompt", prompt)
            page.click("#run")
            page.until(lambda: page.one("#run").is_enabled() and page.one("#notice").is_displayed())
        print(page.text("#notice"))
        open_step(page)
        for name, theme, first, last in (("race", "light", "body", "#answers"), ("step", "dark", "#step", "#step")):
            page.browser.execute_cdp_cmd(
                "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]}
            )
            take(page, PLOTS / f"playground_{name}.png", first, last)


def open_step(page: Page) -> None:
    """Open the step with the most drafted tokens whose passages are from the standard library, which every reader has."""
    steps = page.all("#answers section:first-child .step")
    for step in sorted(steps, key=lambda each: -len(each.find_elements("css selector", ".token"))):
        page.activate(step)
        for node in page.all(".tree [role=treeitem][aria-label*=datastore]")[1:]:
            page.activate(node)
            page.until(lambda: page.all(".passages") or page.all("#step .notice"))
            origins = page.texts(".passages .origin")
            if origins and not any("site-packages" in each for each in origins):
                return
    raise SystemExit("no step has passages of the standard library alone; change PROMPT")


def take(page: Page, file: Path, first: str, last: str) -> None:
    """Write a picture of the page from the top of ``first`` to the bottom of ``last``."""
    clip: dict[str, Any] = page.run(
        """const [a, b] = [...arguments].map((each) => document.querySelector(each).getBoundingClientRect());
        const top = Math.max(0, a.top + scrollY - 12);
        return {x: 0, y: top, width: innerWidth, height: b.bottom + scrollY + 12 - top, scale: 1};""",
        first,
        last,
    )
    found = page.browser.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True})
    file.write_bytes(base64.b64decode(found["data"]))
    print(f"{file}: {os.path.getsize(file) / 1024:.0f} KB")


if __name__ == "__main__":
    main()
