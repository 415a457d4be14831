"""Corpora made larger by copies with changed words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import zstandard

from benchmarks import enlarge_corpus

WORDS = " ".join(f"word{number % 37}" for number in range(400))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "a.jsonl.zst"
    texts = ["", "-" * 5000 + " late", WORDS, "..."]
    path.write_bytes(zstandard.compress("".join(json.dumps({"text": text}) + "\n" for text in texts).encode()))
    return path


def texts_of(path: Path) -> list[str]:
    with zstandard.open(path, "rt") as file:
        return [json.loads(line)["text"] for line in file]


def test_copies_differ_in_some_words(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    options = ["--copies", "2", "--changed", "0.5", "--output", str(output), str(corpus)]
    assert enlarge_corpus.main(options) == 0
    first, second = texts_of(output / "000-a.jsonl.zst"), texts_of(output / "001-a.jsonl.zst")
    assert first == texts_of(corpus)
    assert second[1] == "..."
    assert len(second) == 2  # what stands before the first word is left out
    changed = sum(one != other for one, other in zip(WORDS.split(), second[0].split(), strict=True))
    assert 100 < changed < 300
    assert enlarge_corpus.main(options) == 0
    assert texts_of(output / "001-a.jsonl.zst") == second


@pytest.mark.parametrize(
    ("option", "value"),
    [("--changed", "0"), ("--changed", "1.1"), ("--changed", "nan"), ("--copies", "0"), ("--copies", "1001")],
)
def test_shares_and_copies_out_of_range_are_refused(
    corpus: Path, tmp_path: Path, option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--copies", "2", "--output", str(tmp_path / "out"), str(corpus), option, value]
    assert enlarge_corpus.main(options) == 2
    assert capsys.readouterr().err.startswith(f"error: {option} is {float(value):g}; it must be in ")
    assert not (tmp_path / "out").exists()
