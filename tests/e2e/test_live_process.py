"""``suffolk serve --live`` as a process, and the commands on its folder and its URL."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

import suffolk
from suffolk.cli.main import main
from suffolk.serving.clients.remote_datastore import RemoteDatastore
from tests.support.forked import running
from tests.support.stores import word_tokenizer

FREE = ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")


def command(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """The exit code, the output and the errors of ``suffolk WORDS``."""
    code = main([str(word) for word in words])
    return code, *capsys.readouterr()


def test_delete_reaches_documents_that_are_not_published(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, tokenizer = tmp_path / "chat", tmp_path / "tokenizer.json"
    word_tokenizer().save(str(tokenizer))
    with running("serve", "--live", str(folder), "--live-tokenizer", str(tokenizer), *FREE) as server:
        url = f"grpc://{server.endpoint()}/chat"
        with suffolk.open(url, append=True) as store:
            assert isinstance(store, RemoteDatastore)
            store.append("the cat sat", id="a")
            store.flush()
            store.append("the dog sat", id="b")
            store.append("the dog sat on the mat", group="bob")
            store.append("the mat", id="c")
            store.append("the cat", id="d")
        assert command(capsys, "delete", folder, "--id", "b") == (
            2,
            "",
            f"suffolk: another process has {folder} open for appending; append and delete through its server, such as "
            "grpc://HOST:PORT/chat, or stop it\n",
        )
        assert command(capsys, "delete", url, "--id", "b", "--dry-run")[0] == 2
        assert command(capsys, "delete", url, "--id", "a", "--id", "b") == (
            0,
            "deleted       2 documents, 6 tokens\nleft          3 documents, 10 tokens (generation 2)\n",
            "",
        )
        code, out, _ = command(capsys, "delete", url, "--group", "bob", "--json")
        assert (code, json.loads(out)["documents"], json.loads(out)["left_documents"]) == (0, 1, 2)
        code, _, err = command(capsys, "delete", url, "--id", "x")
        assert (code, err.count("\n")) == (1, 1)
        code, out, _ = command(capsys, "verify", folder)
        assert (code, len(out.splitlines())) == (0, 2)
        server.stop(signal.SIGTERM)
    note = f"2 documents (4 tokens) in {folder}/live/log; 'suffolk serve --live {folder}' serves them too"
    assert f"not published      {note}\n" in command(capsys, "info", folder)[1]
    assert json.loads(command(capsys, "info", folder, "--json")[1])["unpublished"] == note
    with running("serve", str(folder), *FREE) as server:
        _, errors = server.stop(signal.SIGTERM)
        assert f"{folder}: not served: {note}" in errors
    assert "would delete  1 document, 2 tokens\n" in command(capsys, "delete", folder, "--id", "c", "--dry-run")[1]
    assert command(capsys, "delete", folder, "--id", "c", "--id", "e")[:2] == (
        0,
        "deleted       1 document, 2 tokens\nleft          1 document, 2 tokens (generation 2)\n",
    )
    log = b"".join(path.read_bytes() for path in (folder / "live" / "log").iterdir())
    assert [name in log for name in (b'"c"', b'"d"', b"bob")] == [False, True, False]
    assert command(capsys, "delete", folder, "--where", "source=d")[0] == 0
    assert command(capsys, "info", folder)[1].count("not published") == 0


def test_a_datastore_that_is_not_live_has_no_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, errors = command(capsys, "delete", tmp_path, "--group", "g")
    assert (code, errors) == (
        2,
        f"suffolk: --group is 'g', and {tmp_path} has no groups, only live datastores have\n",
    )
