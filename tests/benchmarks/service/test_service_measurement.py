"""A short measurement of a real server has all figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from suffolk.benchmarks.service.measure import ServiceOptions, measure_service
from suffolk.benchmarks.service.report import service_lines, service_panels
from suffolk.datastore.errors import InvalidArgument
from tests.support.stores import make_store


def test_a_short_measurement(tmp_path: Path) -> None:
    documents = np.random.default_rng(0).integers(0, 40, (60, 80)).tolist()
    make_store(tmp_path / "s", [documents], vocab_size=40).close()
    options = ServiceOptions(tmp_path / "s", calls=5, batches=(1, 4), clients=(1, 3), seconds=0.3)
    results = measure_service(options)
    assert set(results["one_by_one"]) == {"1", "4"}
    assert set(results["closed_loop"]) == {"1", "3"}
    for load in (*results["closed_loop"].values(), results["open_loop"]):
        assert load["codes"]["OK"] == load["answered"]["calls"] > 0
        assert load["refusals_with_hint"] <= load["codes"].get("RESOURCE_EXHAUSTED", 0)
    assert results["open_loop"]["rate"] == 2 * max(each["goodput"] for each in results["closed_loop"].values())
    assert any("of the peak of the closed loops" in line for line in service_lines(results))
    assert service_panels(results)


def test_settings_are_checked(tmp_path: Path) -> None:
    for bad in ({"calls": 0}, {"batches": ()}, {"clients": (0,)}, {"seconds": 0.0}):
        with pytest.raises(InvalidArgument):
            ServiceOptions(tmp_path, **bad)  # type: ignore[arg-type]
