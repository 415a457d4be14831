"""Tests the clock that only the passes of draft models advance."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from research.one_tree.counted_time import CountedTime, require_counted
from suffolk.datastore.errors import InvalidArgument, NotFound
from suffolk.serving.decoding.drafters.neural.draft_model.drafter import DraftModelDrafter
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.cost_store import CostKey, costs_path, save_costs
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.tree_layout import chain
from tests.support.tiny_models import VOCAB, tiny_model

COSTS = CostModel([1, 8], [3.0, 5.0])


@pytest.fixture
def drafter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DraftModelDrafter:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return DraftModelDrafter(Target.wrap(tiny_model()), VOCAB, 1, 64, costs=COSTS)


def read(model: Target, tokens: int) -> None:
    model.forward(model.new_cache(1, 64), [0], [chain(np.arange(tokens))], [1])


def test_only_passes_of_draft_models_take_time(drafter: DraftModelDrafter) -> None:
    key, target = CostKey.of(drafter.model), Target.wrap(tiny_model(seed=1))
    save_costs(COSTS, key, costs_path(key))
    real, counted = time.perf_counter, CountedTime([drafter])
    with counted.running():
        assert time.perf_counter() == 0
        read(target, 8)
        assert time.perf_counter() == 0
        read(drafter.model, 8)
        assert time.perf_counter() == COSTS.time(8, 1, 0)
    read(drafter.model, 8)
    with counted.running():  # continues where it stopped
        read(drafter.model, 1)
        assert time.perf_counter() == COSTS.time(8, 1, 0) + COSTS.time(1, 1, 0)
    assert time.perf_counter is real


def test_costs_must_be_known(drafter: DraftModelDrafter) -> None:
    with pytest.raises(NotFound, match="--as-draft-model"):
        CountedTime([drafter])


def test_time_of_other_networks_is_not_counted() -> None:
    require_counted(["draft-model", "token-recycling"])
    with pytest.raises(InvalidArgument, match="leave out eagle or --counted"):
        require_counted(["draft-model", "eagle"])
