"""``suffolk bench counts`` on tiny data writes a correct report."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.measurements import bench, read_report, result_files

pytest.importorskip("matplotlib")


def test_counts_equal_those_of_infini_gram(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("infini_gram")
    path = tmp_path / "counts.json"
    options = ("--queries", "20", "--lengths", "1", "2", "5", "--rounds", "1", *result_files(path))
    shown = bench("counts", folder / "store", *options)
    assert "counts of 120 sequences: all equal" in shown
    results = read_report(path)["results"]
    assert set(results["lengths"]) == {"1", "2", "5"}
    assert all(found["counts_equal"] for found in results["lengths"].values())
    assert results["infini_gram_index"]["bytes_per_token"] > 4
    bench("counts", folder / "store", *options)
    assert read_report(path)["results"]["infini_gram_index"]["reused"]
