"""``suffolk bench build`` on tiny data writes a correct report."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.building import make_texts
from tests.support.measurements import bench, read_report, result_files

pytest.importorskip("matplotlib")


def test_build_gives_the_same_tokens_both_ways(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("draftretriever")
    pytest.importorskip("pydivsufsort")
    path = tmp_path / "build.json"
    sorting = ("--sort-tokens", "10000", "--sort-repeats", "20000", "--sort-rounds", "2", "--threads", "2")
    kept = tmp_path / "suffolk-bench" / "build" / "mine.txt"
    kept.parent.mkdir(parents=True)
    kept.write_text("not yours")
    shown = bench("build", folder / "corpus.jsonl", "--tokenizer", folder / "tokenizer", *sorting, *result_files(path))
    results = read_report(path)["results"]
    assert results["documents"] == results["documents_with_equal_ids"] == 60
    ours, theirs = (runs[0] for runs in results["runs"].values())
    assert ours["tokens"] == theirs["tokens"] > 0
    assert ours["text_bytes"] == theirs["text_bytes"] == sum(len(text.encode()) for text in make_texts(60))
    assert all(run["peak_bytes"] >= run["largest_process_bytes"] > 1 << 20 for run in (ours, theirs))
    assert results["times_faster"] > 0
    assert "equal token ids: 60 of 60" in shown
    inputs = list(results["sorting"]["inputs"].values())
    assert [list(each["tokens_per_second"]) for each in inputs] == [
        ["pydivsufsort", "suffolk, 1 thread", "suffolk, 2 threads"],
        ["suffolk, 2 threads"],
        ["suffolk, 2 threads"],
    ]
    assert all(len(seconds) == 2 for each in inputs for seconds in each["seconds"].values())
    assert results["sorting"]["segment_memory"]["peak_bytes"] > 0
    assert kept.read_text() == "not yours"
    assert list((tmp_path / "suffolk-bench").iterdir()) == [kept.parent]
