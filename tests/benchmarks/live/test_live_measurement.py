"""``suffolk bench live`` on tiny data writes a correct report."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.support.forked import suffolk
from tests.support.measurements import bench, read_report, result_files

pytest.importorskip("matplotlib")
SMALL = ("--tokens", "3000", "--document-tokens", "50", "--turns", "2", "--queries", "60", "--groups", "500")


def test_live_reports_insertion_memory_and_drafts(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "live.json"
    shown = bench("live", folder / "store", *SMALL, *result_files(path))
    results = read_report(path)["results"]
    inserted = results["insertion"]["suffolk"]
    assert list(results["insertion"]) == ["suffolk"]
    assert 2700 <= inserted["tokens"] <= results["tokens"]  # a tenth of the documents is held out
    memory = results["memory"]["suffolk"]
    assert memory["tokens"] == inserted["tokens"]
    assert 4 * memory["tokens"] < memory["bytes"]
    assert results["index"]["tokens"] == inserted["tokens"]
    assert results["index"]["segments"] <= 16
    assert results["drafts"]["suffolk"]["calls"] == results["core"]["while appending"]["calls"] == 60
    assert results["core"]["while appending"]["tokens_per_second"] > 0
    assert [each["segments"] for each in results["segments"].values()] == [1, 8, 8, 16, 16]
    assert len({each["nodes"] for each in results["segments"].values()}) == 1  # the trees do not depend on them
    assert 0 < results["groups"]["overhead_bytes"] <= 64
    assert "500 groups of one token" in shown


def test_few_documents_fill_fewer_segments(folder: Path, tmp_path: Path) -> None:
    few = tuple("400" if word == "3000" else word for word in SMALL)
    bench("live", folder / "store", *few, *result_files(path := tmp_path / "live.json"))
    counts = [each["segments"] for each in read_report(path)["results"]["segments"].values()]
    assert counts[0] == 1
    assert 1 < counts[-1] < 16


def test_numbers_must_be_positive(folder: Path, tmp_path: Path) -> None:
    done = suffolk("bench", "live", folder / "store", "--rate", "0", "--json", tmp_path / "x.json")
    assert done.returncode == 2
    assert "--rate is 0; it must be 1 or more" in done.stderr


@pytest.mark.skipif(importlib.util.find_spec("arctic_inference") is not None, reason="the package is installed")
def test_a_missing_rival_is_one_clear_error(folder: Path, tmp_path: Path) -> None:
    rival = ("--against", "arctic-inference")
    done = suffolk("bench", "live", folder / "store", *SMALL, *rival, "--json", tmp_path / "x.json")
    assert done.returncode != 0
    assert "arctic-inference cannot be imported" in done.stderr
