"""Tests the comparison of two checkouts' builds, appends and drafts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from research import compare_stores
from tests.support.tiny_models import save_tiny

ROOT = Path(__file__).parents[2]


def test_a_checkout_does_the_same_work_as_itself(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model, corpus, path = tmp_path / "tiny", tmp_path / "corpus.txt", tmp_path / "x.json"
    save_tiny(model)
    corpus.write_text("one two three four\n" * 400)
    words = [str(ROOT), str(ROOT), "--tokenizer", str(model), "--corpus", str(corpus), "--json", str(path)]
    assert compare_stores.main([*words, "--rounds", "2", "--builds", "1"]) == 0
    printed = capfd.readouterr().out
    assert printed.endswith("results: equal\n")
    seconds = json.loads(path.read_text())["results"]["processor_seconds"]
    counts = {work: [len(each) for each in sides.values()] for work, sides in seconds.items()}
    assert counts == {"append": [2, 2], "draft": [2, 2], "build": [1, 1]}
    assert all(each > 0 for sides in seconds.values() for values in sides.values() for each in values)


def test_a_checkout_without_a_core_and_a_corpus_without_tokens_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, corpus = tmp_path / "tiny", tmp_path / "corpus.txt"
    save_tiny(model)
    corpus.write_text("one")
    words = ["--tokenizer", str(model), "--corpus", str(corpus)]
    assert compare_stores.main([str(ROOT), str(ROOT), *words]) == 2
    assert "give more than 300" in capsys.readouterr().err
    corpus.write_text("one two three four\n" * 400)
    assert compare_stores.main([str(ROOT), str(tmp_path), *words]) == 2
    assert "there is no Suffolk; name the root of a repository" in capsys.readouterr().err
    assert compare_stores.main([str(ROOT), str(ROOT), "--tokenizer", str(model), "--corpus", "/nowhere"]) == 2
    assert "--corpus /nowhere: there is no such file or folder" in capsys.readouterr().err
