"""Tests ``suffolk generate --explain`` and ``--config`` on a tiny model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from suffolk.cli.explanation import Passage, copied_passages, explain
from suffolk.cli.main import main
from suffolk.cli.source_colours import Colours
from suffolk.datastore.draft_tree import RETRIEVED
from suffolk.serving.decoding.drafters.hybrid.explanation import Explanation
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.cost_store import CostKey, save_costs
from suffolk.serving.decoding.engine.loop.step import Step
from suffolk.serving.decoding.engine.model.target import Target
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
    assert captured.err.count("nodes by source") == 1
    assert captured.err.index("nodes by source") < captured.err.index("M         ")


def test_the_table_counts_what_a_source_gave(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model that drafts for itself is always right."""
    report, costs = tmp_path / "report.json", tmp_path / "costs.json"
    save_costs(CostModel([1, 64], [1.0, 1.01]), CostKey.of(Target.load(model)), costs)
    words = ["--model", model, "--draft-model", model, "--drafter", "draft-model", "--set", f"costs={costs}"]
    words += ["--stats-json", str(report), PROMPT]
    assert generate("--explain", *words) == 0
    shown = capsys.readouterr().err
    rows = {line[:18].strip(): line[18:].split() for line in shown.splitlines()}
    stats = json.loads(report.read_text())
    counts = [str(stats[name]) for name in ("nodes_proposed", "nodes_verified", "accepted")]
    share = f"{stats['accepted'] / 24:.0%}"
    assert stats["accepted"] > 0
    assert rows["draft-model"] == rows["all drafts"] == [*counts, f"{int(counts[2]) / int(counts[1]):.0%}", share]
    assert rows["target"] == [f"{1 - stats['accepted'] / 24:.0%}"]
    assert "<a:" in shown
    assert generate("--explain", "--set", "colour=always", *words) == 0
    coloured = capsys.readouterr()
    assert "\x1b[38;5;130m" in coloured.out
    assert coloured.err.startswith("colours   \x1b[38;5;130mdraft-model\x1b[0m; without colour: ")
    assert "<a:" not in coloured.err


def test_copied_passages_are_the_longest_that_hold_a_drafted_token(tmp_path: Path) -> None:
    with make_store(tmp_path / "store", [[[1, 2, 3, 4, 5, 6], [7, 8, 9, 7, 8, 9]]], vocab_size=12) as store:
        tokens = [1, 2, 3, 4, 11, 7, 8, 9, 10, 3, 4, 5, 6]
        drafted = [RETRIEVED] * len(tokens)
        assert copied_passages(store, tokens, drafted) == [Passage(0, 4, 1), Passage(9, 13, 1), Passage(5, 8, 2)]
        assert copied_passages(store, tokens, [0] * len(tokens)) == []
        twice = [1, 2, 3, 11, 7, 8, 9, 11, 1, 2, 3]
        assert copied_passages(store, twice, [RETRIEVED] * len(twice)) == [Passage(0, 3, 1), Passage(4, 7, 2)]
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
        lines = explain(None, steps, [store], Explanation(), Colours(False, False))
        assert explain(None, steps, [store], Explanation(), Colours(True, True)) == lines[3:]  # was shown in colours
        coloured = explain(None, steps, [store], Explanation(), Colours(False, True))
    assert lines == [
        "text by source: <a:...> datastore, <b:...> prompt-lookup; unmarked: the target's own tokens",
        "<a:one two> three<b: nine> four",
        "",
        "datastore store: the longest copied passages, and documents that hold them",
        "  3 tokens, 1 time: '1 2 3'",
        "    segment 0 document 0, token 1",
        "",
    ]
    assert coloured[0] == "\x1b[38;5;32mone two\x1b[0m three\x1b[38;5;208m nine\x1b[0m four"
    assert coloured[2:] == lines[2:]


def test_documents_of_remote_datastores_are_named(tmp_path: Path) -> None:
    tokens = [1, 2, 3, 9] * 80  # more than a draft service takes in one call
    steps = [Step(tuple(tokens), (RETRIEVED,) * len(tokens), (), "length")]
    with (
        make_store(tmp_path / "folder", [[[5, 1, 2, 3], [1, 2]]], vocab_size=12) as code,
        make_store(tmp_path / "wiki", [[[9, 1, 2, 3]]], vocab_size=12) as wiki,
    ):
        with serving({"code": code, "wiki": wiki}) as server, connected(server, "code,wiki") as both:
            [passage, *documents] = explain(None, steps, [both], Explanation(), Colours(False, False))[4:7]
            assert passage == "  4 tokens, 1 time: '9 1 2 3'"
            assert documents[0] == "    wiki: segment 0 document 0, token 0"
            with connected(server, "code") as remote:
                assert explain(None, steps, [remote], Explanation(), Colours(False, False))[4:6] == [
                    "  3 tokens, 1 time: '1 2 3'",
                    "    segment 0 document 0, token 1",
                ]
        with serving({"code": code}, shows_occurrences=False) as server, connected(server) as remote:
            line = explain(None, steps, [remote], Explanation(), Colours(False, False))[5]
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
