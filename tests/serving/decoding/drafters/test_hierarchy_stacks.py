"""Tests the stacks of a hierarchy: their notation and their levels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from suffolk.benchmarks.hierarchy.agreement import ModelVariant
from suffolk.benchmarks.hierarchy.measurement import Measurements
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.drafters.drafter_config import DrafterConfig
from suffolk.serving.decoding.drafters.hierarchy.load import StackLoader
from suffolk.serving.decoding.drafters.hierarchy.stack_spec import StackLevel, name_stack, read_stack
from suffolk.serving.decoding.drafters.load import load_drafters
from suffolk.serving.decoding.drafters.neural.early_exit.model import ExitLayer, shallow
from suffolk.serving.decoding.drafters.neural.early_exit.training import new_head
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.cost_store import FoundCosts
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.drafters import alone, eager_decoder
from tests.support.hierarchies import PROMPT, request
from tests.support.tiny_models import tiny_model


def test_stacks_are_written_and_read() -> None:
    text = "prompt-lookup:4 > exit-8@0.5:3 > exit-16:2 > draft-model@0:6"
    stack = read_stack(text + " > target")
    assert name_stack(stack) == text
    assert stack[1] == StackLevel("exit-8", 3, 0.5)
    assert [each.exit_layers for each in stack] == [None, 8, 16, None]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not a level"),
        ("draft-model", "'draft-model' is not a level"),
        ("draft-model:0", "tokens of level draft-model is 0; it must be between 1 and 64"),
        ("large:3", "level 'large' is unknown"),
        ("exit-1:2 > datastore:3", "level datastore stands above exit-1"),
        ("exit-1:2 > exit-1:3", "exit-1 is named twice"),
        ("exit-3:2 > exit-1:3", "must rise"),
        ("prompt-lookup@1:3", "retrieval samples nothing"),
        ("draft-model@-1:3", r"it must be 0 \(greedy\), or between 1e-06 and 100"),
        ("draft-model@1e-7:3", r"it must be 0 \(greedy\), or between 1e-06 and 100"),
        ("draft-model@101:3", r"it must be 0 \(greedy\), or between 1e-06 and 100"),
        ("draft-model@1e:3", "is not a number"),
    ],
)
def test_what_is_no_stack_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        read_stack(text)


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ([StackLevel("draft-model", 4), StackLevel("prompt-lookup", 4)], "prompt-lookup stands above draft-model"),
        ([StackLevel("exit-1", 2), StackLevel("exit-1", 3)], "exit-1 is named twice"),
        ([StackLevel("exit-2", 2), StackLevel("exit-1", 3)], "must rise"),
        ([], "levels are 0; give 1 to 16"),
    ],
)
def test_levels_are_held_to_the_order_that_texts_are(levels: list[StackLevel], message: str) -> None:
    """An invalid stack is rejected before a model is loaded, and before costs are reported."""
    with pytest.raises(InvalidArgument, match=message):
        StackLoader(Target.wrap(tiny_model())).drafter(levels)
    target = ModelVariant("target", Target.wrap(tiny_model()))
    with pytest.raises(InvalidArgument, match=message):
        Measurements((target,), (), (np.ones(2),), (), (), 4).predict(levels)


def test_costs_are_measured_for_the_slots_that_they_are_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs are stored per batch size and per drafter, because a pass for one request costs less than one for four."""
    looked: list[int] = []

    def look(model: Target, slots: int) -> FoundCosts:
        looked.append(slots)
        return FoundCosts(CostModel([1], [float(slots)]), "measured")

    monkeypatch.setattr("suffolk.serving.decoding.drafters.hierarchy.load.find_costs", look)
    stacks = StackLoader(Target.wrap(tiny_model()))
    assert [stacks.costs("exit-1", slots).time(1, 1, 0) for slots in (1, 4, 1)] == [1.0, 4.0, 1.0]
    assert looked == [1, 4]
    drafter = stacks.drafter("exit-1:4", 4, 160)
    drafter.propose([request()])
    assert drafter.stats()["passes"] > 0
    assert looked == [1, 4]
    assert stacks.costs("exit-1", 4).time(1, 1, 0) == 4.0  # its passes took less, and it alone has learned that


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_trained_exit_drafts_as_a_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, temperature: float) -> None:
    """The exit replaces the target's output layer after its number of layers, and the output equals plain decoding."""
    monkeypatch.setattr(
        "suffolk.serving.decoding.drafters.hierarchy.load.find_costs",
        lambda *given: FoundCosts(CostModel([1], [1e-9]), "measured"),
    )
    target, settings = Target.wrap(tiny_model()), SamplingSettings(30, temperature, seed=3)
    new_head(target, 1, 8).save(tmp_path)
    stacks = StackLoader(target, heads=[tmp_path])
    assert any(isinstance(each, ExitLayer) for each in stacks.model("exit-1").model.modules())
    drafter = stacks.drafter("prompt-lookup:3 > exit-1:4", 1, 160, thrifty=False)
    run = eager_decoder(target, drafter).generate(PROMPT, settings)
    list(run)
    assert run.tokens == alone(target, PROMPT, settings)
    assert drafter.stats()["exit-1: passes"] >= run.stats.steps
    assert run.stats.accepted > 0


def test_two_trained_exits_behind_as_many_layers_are_refused(tmp_path: Path) -> None:
    """Regression: the last of two exits with the same number of layers used to replace the other silently."""
    target = Target.wrap(tiny_model())
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        new_head(target, 1, 8).save(tmp_path / name)
    with pytest.raises(InvalidArgument, match=r"heads .*one and .*two are both level exit-1; leave one of them out"):
        StackLoader(target, heads=[tmp_path / "one", tmp_path / "two"])
    sources = DrafterConfig(head=[tmp_path / "one", tmp_path / "two"], levels="exit-1:2")
    with pytest.raises(InvalidArgument, match="are both level exit-1"):
        load_drafters(target, sources)


def test_exits_keep_the_first_layers_alone() -> None:
    target = Target.wrap(tiny_model())
    assert shallow(target, 1).new_cache(1, 10).nbytes * 2 == target.new_cache(1, 10).nbytes
