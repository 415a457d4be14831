"""``suffolk token``: add, list and remove."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from suffolk.cli.main import main
from suffolk.serving.net.access_file import read_access_file


def test_tokens_are_added_listed_and_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "access.toml")
    assert main(["token", "add", file, "alice"]) == 0
    token = capsys.readouterr().out.strip()
    assert main(["token", "add", file, "ci", "--role", "acme=append", "--role", "*=read"]) == 0
    found = read_access_file(Path(file)).find_token(token)
    assert found is not None
    assert {tenant: str(role) for tenant, role in found.roles.items()} == {"default": "read"}
    capsys.readouterr()
    assert main(["token", "list", file]) == 0
    listed = capsys.readouterr().out
    assert "alice" in listed
    assert "acme=append, *=read" in listed
    assert token.rpartition("_")[2] not in listed
    assert main(["token", "list", file, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["kind"], row["name"]) for row in rows] == [("token", "alice"), ("token", "ci")]
    assert main(["token", "remove", file, "alice"]) == 0
    assert read_access_file(Path(file)).find_token(token) is None
    assert main(["token", "remove", file, rows[1]["id"]]) == 0
    assert main(["token", "list", file]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["add", "FILE", "bob", "--role", "king"], "--role is 'king'; give TENANT=ROLE, such as default=read"),
        (["add", "FILE", "bob", "--role", "acme=root"], "--role: the role of acme is 'root'; it must be one of read"),
        (["add", "FILE", "acme=read"], "give roles with --role, and a name without '='"),
        (["add", "FILE", "alice"], "a token has the name 'alice' already"),
        (["remove", "FILE", "bob"], "no token has the name or id 'bob'; 'suffolk token list"),
        (["list", "MISSING"], "it cannot be read: No such file or directory; 'suffolk token add' makes one"),
    ],
)
def test_wrong_words_have_one_error(
    words: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "access.toml")
    assert main(["token", "add", file, "alice"]) == 0
    names = {"FILE": file, "MISSING": str(tmp_path / "missing.toml")}
    capsys.readouterr()
    assert main(["token", *(names.get(word, word) for word in words)]) == 2
    errors = capsys.readouterr().err
    assert text in errors
    assert errors.count("\n") == 1
