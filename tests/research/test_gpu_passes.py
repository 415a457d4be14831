"""Measurements of passes, on a CPU: bits and texts of packed passes in fp64."""

from __future__ import annotations

import numpy as np

from research.gpu_passes import Scope, compare
from suffolk.serving.decoding.engine.model.target import Target
from tests.support.tiny_models import tiny_model

SCOPE = Scope(points=((1, 1, 20), (2, 4, 30)), mixed=((0, 3), (2, 5)), timed=1, new_tokens=6)


def test_it_compares_times_bits_and_texts() -> None:
    target = Target.wrap(tiny_model(num_hidden_layers=1))
    for kind in ("packed", "captured"):
        found = compare(target, kind, [np.arange(9), np.arange(5)], SCOPE)
        assert found["kind"] == kind
        assert [tuple(row[:3]) for row in found["points"]] == list(SCOPE.points)
        assert [tuple(row[:2]) for row in found["mixed"]] == list(SCOPE.mixed)
        assert all(0 < host <= whole for *_, whole, host in found["points"] + found["mixed"])
        assert all(count == 48 for _, count in found["equal_bits"].values())
        assert (found["equal_texts"], found["equal_samples"]) == ((2, 2), (4, 4))
