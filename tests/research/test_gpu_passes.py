"""The comparison of passes, on a CPU: bits and texts of packed passes in fp64."""

from __future__ import annotations

import numpy as np
import pytest

from research.gpu_passes import compare, show
from suffolk.serving.engine.model.target import Target
from tests.support.tiny_models import tiny_model


def test_it_compares_times_bits_and_texts(capsys: pytest.CaptureFixture[str]) -> None:
    target = Target.wrap(tiny_model(num_hidden_layers=1))
    points = [(1, 1, 20), (2, 4, 30)]
    found = [compare(target, kind, [np.arange(9), np.arange(5)], 6, points) for kind in ("packed", "captured")]
    assert [each.kind for each in found] == ["packed", "captured"]
    for each in found:
        assert list(each.milliseconds) == points
        assert all(count == 48 for _, count in each.bits.values())
        assert each.texts == (2, 2)
        assert each.to_dict()["points"][1]["rows"] == 4
    show(found, target.layers)
    shown = capsys.readouterr().out
    assert "packed, ms" in shown
    assert "2 of 2" in shown
