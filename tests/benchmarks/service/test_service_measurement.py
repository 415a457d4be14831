"""A short measurement of a real server has all figures."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from suffolk.benchmarks.datastore_options import ServiceOptions
from suffolk.benchmarks.service import measure
from suffolk.benchmarks.service.load import Load
from suffolk.datastore.errors import InvalidArgument
from tests.support.measurements import bench, read_report, result_files
from tests.support.stores import make_store

pytest.importorskip("matplotlib")


def test_a_short_measurement(tmp_path: Path) -> None:
    documents = np.random.default_rng(0).integers(0, 40, (60, 80)).tolist()
    make_store(tmp_path / "s", [documents], vocab_size=40).close()
    options = ("--calls", "5", "--batches", "1", "4", "--clients", "1", "3", "--seconds", "0.3")
    path = tmp_path / "service.json"
    shown = bench("service", tmp_path / "s", *options, *result_files(path))
    results = read_report(path)["results"]
    assert set(results["one_by_one"]) == {"1", "4"}
    assert set(results["closed_loop"]) == {"1", "3"}
    for load in (*results["closed_loop"].values(), results["open_loop"]):
        assert load["codes"]["OK"] == load["answered"]["calls"] > 0
        assert load["refusals_with_hint"] <= load["codes"].get("RESOURCE_EXHAUSTED", 0)
    assert results["open_loop"]["rate"] == 2 * max(each["goodput"] for each in results["closed_loop"].values())
    assert max(each["share_of_peak"] for each in results["closed_loop"].values()) == 1
    assert "of peak" in shown


def test_a_deadline_that_no_call_meets_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: without an answered call, the shares of the peak used to divide by 0."""
    make_store(tmp_path / "s", [[[1, 2, 3] * 20]], vocab_size=40).close()
    for name in ("run_closed", "run_open"):
        monkeypatch.setattr(measure, name, lambda *_: Load(1.0, codes=Counter(DEADLINE_EXCEEDED=3)))
    results = measure.measure_service(ServiceOptions(store=tmp_path / "s", calls=1, batches=(1,), clients=(1,)))
    assert [each["share_of_peak"] for each in (results["closed_loop"]["1"], results["open_loop"])] == [None, None]
    assert len(list(map(str, measure.tables(results)))) == 7


def test_settings_are_checked(tmp_path: Path) -> None:
    for bad in ({"calls": 0}, {"batches": ()}, {"clients": (0,)}, {"seconds": 0.0}):
        with pytest.raises(InvalidArgument):
            ServiceOptions(store=tmp_path, **bad)  # type: ignore[arg-type]
