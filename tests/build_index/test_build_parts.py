"""The parts of a build: their times, and processes that start before they are needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from suffolk.build_index.builder import build
from suffolk.build_index.gather import SegmentMaker
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.pool import segments_here
from suffolk.datastore.errors import NotFound
from tests.support.building import make_texts, write_jsonl, write_tokenizer


def test_the_time_of_a_build_has_a_name_for_each_part(tmp_path: Path) -> None:
    corpus = write_jsonl(tmp_path / "a.jsonl", make_texts(20))
    report = build(BuildOptions((str(corpus),), tmp_path / "store", tokenizer=write_tokenizer(tmp_path)))
    parts = report.other_seconds
    assert list(parts) == [
        "listing files",
        "tokenizer",
        "comparing tokenizers",
        "journal",
        "publishing",
        "ending processes",
    ]
    assert report.seconds == pytest.approx(report.tokenize_seconds + report.sort_seconds + sum(parts.values()))
    shown = replace(report, other_seconds=parts | {"tokenizer": 1.5, "journal": 0.0}).lines()[2]
    assert "tokenizer 1.5 s" in shown
    assert "journal" not in shown


def test_tokenizing_processes_start_before_the_tokenizer_is_read(tmp_path: Path) -> None:
    """Then they load their modules meanwhile. They end with a build that fails."""
    corpus = write_jsonl(tmp_path / "a.jsonl", make_texts(9))
    seen: list[str] = []

    @contextmanager
    def spied(workers: int) -> Iterator[SegmentMaker]:
        seen.append(f"start {workers}")
        with segments_here(workers) as make:
            try:
                yield make
            finally:
                seen.append("end")

    with pytest.raises(NotFound, match="no such file or folder"):
        build(BuildOptions((str(corpus),), tmp_path / "store", tokenizer="./none"), open_maker=spied)
    assert seen == ["start 1", "end"]
