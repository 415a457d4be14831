"""Tests ``suffolk generate --explain`` and ``--config`` on a tiny model."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffolk.cli.explanation import Passage, copied_passages, explain
from suffolk.cli.main import main
from suffolk.datastore.draft_tree import RETRIEVED
from suffolk.serving.engine.loop.request import Step
from tests.support.draft_server import connected, serving
from tests.support.generate_command import PROMPT, generate
from tests.support.stores import make_store


@pytest.mark.parametrize("drafter", ["hybrid", "datastore"])
def test_the_text_is_marked_by_source_with_the_documents(
    drafter: str, model: str, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--model", model, "--datastore", store, "--drafter", drafter, PROMPT]
    assert generate("--set", "colour=never", *words) == 0
    text = capsys.readouterr().out.rstrip("\n")
    assert generate("--explain", *words) == 0
    captured = capsys.readouterr()
    assert captured.out.rstrip("\n") == text
    lines = captured.err.splitlines()
    assert lines[0].startswith("text by source: ")
    assert "unmarked: the target's own tokens" in lines[0]
    assert any(line.startswith("datastore bytes: ") for line in lines)
    assert ("nodes retrieved" in captured.err) == (drafter == "hybrid")


def test_copied_passages_are_the_longest_that_hold_a_drafted_token(tmp_path: Path) -> None:
    with make_store(tmp_path / "store", [[[1, 2, 3, 4, 5, 6], [7, 8, 9, 7, 8, 9]]], vocab_size=12) as store:
        tokens = [1, 2, 3, 4, 11, 7, 8, 9, 10, 3, 4, 5, 6]
        drafted = [RETRIEVED] * len(tokens)
        assert copied_passages(store, tokens, drafted) == [Passage(0, 4, 1), Passage(9, 13, 1), Passage(5, 8, 2)]
        assert copied_passages(store, tokens, [0] * len(tokens)) == []
        only = [0] * len(tokens)
        only[6] = RETRIEVED | 2
        assert copied_passages(store, tokens, only) == [Passage(5, 8, 2)]
        assert copied_passages(store, [1, 2, 3, 40], [1, 1, 1, 1]) == [Passage(0, 3, 1)]


def test_marks_and_documents_are_shown(tmp_path: Path) -> None:
    steps = [
        Step((1, 2, 3), (RETRIEVED, RETRIEVED, 0), (("one two", RETRIEVED), (" three", 0)), ""),
        Step((9, 4), (2, 0), ((" nine", 2), (" four", 0)), "length"),
    ]
    with make_store(tmp_path / "store", [[[5, 1, 2, 3], [1, 2]]], vocab_size=12) as store:
        lines = explain(None, steps, [store], [])
    assert lines == [
        "text by source: <a:...> datastore, <b:...> prompt-lookup; unmarked: the target's own tokens",
        "<a:one two> three<b: nine> four",
        "",
        "datastore store: the longest copied passages, and documents that hold them",
        "  3 tokens, 1 time: '1 2 3'",
        "    segment 0 document 0, token 1",
        "",
    ]


def test_documents_of_remote_datastores_are_named(tmp_path: Path) -> None:
    tokens = [1, 2, 3, 9] * 80  # more than a draft service takes in one call
    steps = [Step(tuple(tokens), (RETRIEVED,) * len(tokens), (), "length")]
    with (
        make_store(tmp_path / "folder", [[[5, 1, 2, 3], [1, 2]]], vocab_size=12) as code,
        make_store(tmp_path / "wiki", [[[9, 1, 2, 3]]], vocab_size=12) as wiki,
    ):
        with serving({"code": code, "wiki": wiki}) as server, connected(server, "code,wiki") as both:
            [passage, *documents] = explain(None, steps, [both], [])[4:7]
            assert passage == "  4 tokens, 1 time: '9 1 2 3'"
            assert documents[0] == "    wiki: segment 0 document 0, token 0"
            with connected(server, "code") as remote:
                assert explain(None, steps, [remote], [])[4:6] == [
                    "  3 tokens, 1 time: '1 2 3'",
                    "    segment 0 document 0, token 1",
                ]
        with serving({"code": code}, shows_occurrences=False) as server, connected(server) as remote:
            line = explain(None, steps, [remote], [])[5]
            assert line.startswith(
                f"    documents unknown: {remote.url}: this server shows no occurrences; ask its operator"
            )


def test_a_file_sets_what_is_generated(
    model: str, store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "suffolk.toml"
    file.write_text(
        f'model = "{model}"\ndatastore = "{store}"\nslots = 4\n'
        '[generate]\nmax_new_tokens = 5\ndrafter = "datastore"\nmax_nodes = 4\ntemperature = 0.8\n'
    )
    assert main(["generate", "--config", str(file), PROMPT]) == 0
    captured = capsys.readouterr()
    assert "tokens    5 (length)" in captured.err
    words = ["--model", model, "--datastore", store, "--drafter", "datastore", "--temperature", "0.8"]
    assert main(["generate", *words, "--max-new-tokens", "5", PROMPT]) == 0
    assert capsys.readouterr().out == captured.out
    file.write_text(file.read_text() + "[worker]\nqueue = -1\n")
    assert main(["generate", "--config", str(file), PROMPT]) == 2
    assert capsys.readouterr().err == f"suffolk: {file}: queue in [worker] is -1; it must be between 0 and 4096\n"
    file.write_text(f'model = "{model}"\nmax_match = 5\nmin_match = 9\n')
    assert main(["generate", "--config", str(file), PROMPT]) == 2
    assert capsys.readouterr().err.startswith(f"suffolk: {file}: min_match is 9; it must not be above")
