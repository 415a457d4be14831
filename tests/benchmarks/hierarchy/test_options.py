"""Tests which levels ``suffolk hierarchy plan --measure`` measures, and their order in a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suffolk.benchmarks.hierarchy.agreement import Agreement, ModelVariant
from suffolk.benchmarks.hierarchy.measurement import Measurements
from suffolk.benchmarks.hierarchy.options import HierarchyOptions, check_measuring, read_stacks, wanted_levels
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.drafters.hierarchy.plan import plans_by_size
from suffolk.serving.decoding.drafters.hierarchy.stack_spec import read_stack
from suffolk.serving.decoding.drafters.neural.early_exit.training import new_head
from suffolk.serving.decoding.engine.model.target import Target
from tests.support.tiny_models import tiny_model


def options(**changes: Any) -> HierarchyOptions:
    return HierarchyOptions(**({"rounds": 1, "max_new_tokens": 8} | changes))


def test_a_stack_named_twice_runs_once() -> None:
    """Regression: if a stack was named twice, the runs of one used to be counted for the other."""
    assert len(read_stacks(options(stack=["prompt-lookup:4", "prompt-lookup:4 > target"]))) == 1


def test_a_trained_exit_is_a_level_without_a_stack_that_names_it(tmp_path: Path) -> None:
    """Regression: a trained exit used to be loaded but missing from the plan, if no stack named it."""
    new_head(Target.wrap(tiny_model()), 1, 8).save(tmp_path)
    asked = options(head=[tmp_path], draft_model="m", temperature=1e-6)
    warmths = (None, 0.0, 1e-6)
    assert wanted_levels(asked, []) == [
        ("prompt-lookup", None),
        *((name, warmth) for name in ("exit-1", "draft-model") for warmth in warmths),
    ]


def test_only_trained_exits_can_be_levels(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InvalidArgument, match="is of kind eagle; only trained exits"):
        wanted_levels(options(head=[tmp_path]), [])


def test_more_models_than_a_stack_takes_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="16 models would draft; a stack takes at most 15 besides retrieval"):
        wanted_levels(options(exit=[*range(1, 17)]), [])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"draft_model": "m"}, "--draft-model m adds level draft-model, which no --stack uses"),
        ({"datastore": ["s"]}, "--datastore s adds level datastore, which no --stack uses"),
        ({"exit": [2]}, "--exit 2 adds level exit-2, which no --stack uses"),
    ],
)
def test_levels_that_no_stack_uses_are_rejected(changes: dict[str, Any], message: str) -> None:
    asked = options(stack=["prompt-lookup:4"], **changes)
    with pytest.raises(InvalidArgument, match=message):
        check_measuring(asked, read_stacks(asked))


def test_every_plan_is_a_valid_stack_for_any_measured_times() -> None:
    """Regression: some plans could not be run.

    In these, a deeper exit was measured as faster, or the variants of a model were not adjacent.
    """
    models = [Target.wrap(tiny_model()) for _ in range(4)]
    names = ("exit-7", "exit-8", "draft-model")
    voices = [
        ModelVariant(f"{name}{warmth}", model)
        for name, model in zip(names, models, strict=False)
        for warmth in ("", "@0")
    ]
    seconds = (0.30, 0.10, 0.20, 0.25, 0.05, 0.22, 9.0)
    agreement = Agreement(np.full((7, 7, 40), 0.99), [], [])
    costs = tuple(np.full(2, each) for each in seconds)
    measured = Measurements((*voices, ModelVariant("target", models[3])), (), costs, (), (agreement,), 6)
    levels = measured.levels()
    assert levels.names == ["draft-model", "draft-model@0", "exit-7", "exit-7@0", "exit-8", "exit-8@0", "target"]
    plans = plans_by_size(levels, 6)
    assert max(len(plan.names) for plan in plans) > 2
    for plan in plans[1:]:
        read_stack(str(plan))
