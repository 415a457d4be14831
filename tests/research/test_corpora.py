"""Tests corpora that are enlarged by copies with changed words, and synthetic corpora."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from research import enlarge_corpus, unrelated_corpus

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
    assert len(second) == 2  # characters before the first word are left out
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
    assert capsys.readouterr().err.startswith(f"error: {option} is {float(value):g}; it must be between ")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        (b'{"text": "plain"}\n', "broken zstandard stream"),
        (zstandard.compress(b'{"text": "whole"}\n' * 99)[:-4], "broken zstandard stream"),
        (zstandard.compress(b'{"text": "whole"}\n\n{"words": 1}\n'), "line 3 has no text in 'text'"),
        (zstandard.compress(b'{"text": 5}\n'), "line 1 has no text in 'text'"),
        (zstandard.compress(b"{"), "line 1 has no text in 'text'"),
    ],
)
def test_a_damaged_corpus_is_refused_and_leaves_nothing(
    corpus: Path, tmp_path: Path, damaged: bytes, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, output = tmp_path / "bad.jsonl.zst", tmp_path / "out"
    bad.write_bytes(damaged)
    assert enlarge_corpus.main(["--copies", "2", "--output", str(output), str(corpus), str(bad)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: corpus {bad}")
    assert reason in line
    assert not output.exists()
    output.mkdir()
    assert enlarge_corpus.main(["--copies", "2", "--output", str(output), str(corpus), str(bad)]) == 2
    assert not list(output.iterdir())


def test_a_synthetic_corpus_has_the_requested_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new" / "corpus.jsonl"
    assert unrelated_corpus.main(["--output", str(path), "--megabytes", "0.01"]) == 0
    texts = [json.loads(line)["text"] for line in path.read_text().splitlines()]
    assert sum(map(len, texts)) >= 10_000
    assert capsys.readouterr().out == f"{path}: {len(texts)} documents, {sum(map(len, texts)) / 1e6:.2f} MB of text\n"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("size", ["nan", "-1", "0", "inf"])
def test_a_synthetic_corpus_without_a_valid_size_is_rejected(
    tmp_path: Path, size: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert unrelated_corpus.main(["--output", str(tmp_path / "corpus.jsonl"), f"--megabytes={size}"]) == 2
    assert capsys.readouterr().err == f"error: --megabytes is {size}; it must be between 1e-06 and 1e+06\n"
    assert not list(tmp_path.iterdir())


def test_an_interrupted_corpus_is_not_left_half_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(size: int, seed: int) -> Iterator[str]:
        yield "first"
        raise KeyboardInterrupt

    path = tmp_path / "corpus.jsonl"
    path.write_text("before")
    monkeypatch.setattr(unrelated_corpus, "documents", interrupted)
    assert unrelated_corpus.main(["--output", str(path)]) == 130
    assert capsys.readouterr().err == "error: interrupted\n"
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_unrelated_texts_have_the_requested_length_and_depend_on_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unrelated_corpus, "_WORDS", 200)  # to make 20,000 words takes most of the time
    texts = list(unrelated_corpus.documents(20_000, 0))
    assert 20_000 <= sum(map(len, texts)) < 30_000
    assert texts == list(unrelated_corpus.documents(20_000, 0)) != list(unrelated_corpus.documents(20_000, 1))
