"""Runs workers behind nginx with the configuration of docs/how-to/proxies.md. Skipped without Debian's package nginx."""

from __future__ import annotations

import http.client
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import openai
import pytest

from tests.support.waiting import HANG, until
from tests.support.worker_server import talking_target, working

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/bin")
PAGE = Path(__file__).parents[2] / "docs/how-to/proxies.md"
pytestmark = pytest.mark.skipif(NGINX is None, reason="needs nginx: apt-get install nginx")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextmanager
def nginx(folder: Path, *workers: str) -> Iterator[int]:
    """nginx with the page's configuration, before ``workers``; yields its port."""
    found = re.search(r"```nginx\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    port = free_port()
    text = found[1].replace("listen 8080", f"listen 127.0.0.1:{port}")
    for address, worker in zip(("127.0.0.1:7711", "127.0.0.1:7713"), workers, strict=True):
        text = text.replace(address, worker)
    paths = "".join(
        f"{kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config = folder / "nginx.conf"
    config.write_text(
        f"daemon off;\npid {folder}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{paths}{text}}}\n"
    )
    process = subprocess.Popen([str(NGINX), "-c", str(config), "-p", str(folder)])
    try:
        until(lambda: is_open(port))
        yield port
    finally:
        process.terminate()
        process.wait(HANG)


def is_open(port: int) -> bool:
    with socket.socket() as found:
        return found.connect_ex(("127.0.0.1", port)) == 0


def test_workers_behind_nginx(tmp_path: Path) -> None:
    with (
        working(talking_target(), slots=1, allowed_hosts=("llm.example",)) as server,
        nginx(tmp_path, f"127.0.0.1:{free_port()}", str(server.http)) as port,  # the first worker is down
        openai.OpenAI(
            base_url=f"http://127.0.0.1:{port}/v1",
            api_key="none",
            max_retries=0,
            timeout=HANG,
            default_headers={"Host": "llm.example"},
        ) as client,
    ):
        for _ in range(3):  # nginx tries both in turn
            assert client.completions.create(model="tiny", prompt="abc", max_tokens=3).usage is not None
        extra = {"ignore_eos": True}
        stream = client.completions.create(model="tiny", prompt="abc", max_tokens=4000, stream=True, extra_body=extra)
        next(iter(stream))
        assert server.service.engine.stats()["running"] == 1  # the event came before the end
        stream.close()
        until(lambda: server.service.engine.stats()["running"] == 0)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG)
        connection.request("GET", "/v1/models", headers={"Host": "foreign.example"})
        assert connection.getresponse().status == 403
        connection.close()
