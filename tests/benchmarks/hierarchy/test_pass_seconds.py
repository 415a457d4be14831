"""Tests the interpolation of pass costs between the timed sizes."""

from __future__ import annotations

import numpy as np
import pytest

from suffolk.benchmarks.hierarchy import trial
from suffolk.benchmarks.hierarchy.agreement import ModelVariant, TargetAnswer
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.tiny_models import tiny_model


def test_the_cost_step_after_sixteen_rows_does_not_raise_smaller_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles have 16 rows.

    So passes that verify 13 to 15 tokens cost the same, and a pass that verifies 16 tokens costs twice as much.
    """
    monkeypatch.setattr(trial, "_time", lambda level, request, size, *rest: 1.0 if size + 1 <= 16 else 2.0)
    written = TargetAnswer(np.arange(5, dtype=np.int32), np.arange(9, dtype=np.int32), SamplingSettings(9))
    [costs] = trial.time_passes([ModelVariant("target", Target.wrap(tiny_model()))], [written])
    assert costs.tolist() == [1.0] * 16 + [2.0]
