"""Latency of a draft service while generations are published."""

from __future__ import annotations

import argparse
from pathlib import Path

from research.hot_swap import measure
from tests.support.stores import make_store


def test_every_kind_of_generation_is_served_without_an_error(tmp_path: Path) -> None:
    make_store(tmp_path / "store", [[list(range(30)), list(range(5, 40))]], vocab_size=40).close()
    args = argparse.Namespace(
        store=tmp_path / "store", rounds=5, window=0.2, clients=2, rate=50.0, batch=2, folder=tmp_path
    )
    found = measure(args)
    assert found["errors"] == []
    assert len(found["noticed_s"]) == 5
    assert min(found[window]["calls"] for window in ("quiet", "changing")) > 0
