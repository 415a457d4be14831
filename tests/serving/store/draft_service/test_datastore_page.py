"""The files of the draft service's page: there or not, without an identity, and with headers that forbid everything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffolk.serving.net.access_file import add_token
from suffolk.serving.net.identity import Role
from tests.support.brute_force import BruteForceRetriever
from tests.support.draft_server import serving
from tests.support.http_requests import ask

FILES = ("/", "/playground/datastore.js", "/playground/style.css", "/playground/icon.svg")


def test_the_page_needs_no_identity_and_the_data_does(tmp_path: Path) -> None:
    add_token(tmp_path / "access.toml", "reader", {"default": Role.READ})
    stores = {"wiki": BruteForceRetriever([[1]], 4)}
    with serving(stores, playground=True, access=tmp_path / "access.toml") as server:
        for path in FILES:
            status, headers, content = ask(server, "GET", path)
            assert (status, bool(content)) == (200, True)
            assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; ")
            assert headers["x-content-type-options"] == "nosniff"
        assert b"<title>Suffolk datastores</title>" in ask(server, "GET", "/")[2]
        for path in ("/v1/info", "/v1/draft", "/v1/occurrences", "/playground/worker.html", "/playground/../style.css"):
            assert ask(server, "GET", path)[0] == 401
        assert ask(server, "POST", "/")[0] == 405


@pytest.mark.parametrize("path", FILES)
def test_the_page_can_be_left_out(path: str) -> None:
    with serving({"wiki": BruteForceRetriever([[1]], 4)}) as server:
        assert ask(server, "GET", path)[0] == 404
