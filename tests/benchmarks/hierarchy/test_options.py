"""Which levels ``suffolk hierarchy plan --measure`` measures, and in which order they stand in a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suffolk.benchmarks.hierarchy.agreement import Agreement, ModelVariant
from suffolk.benchmarks.hierarchy.measurement import Measurements
from suffolk.benchmarks.hierarchy.options import HierarchyOptions, check_measuring, read_stacks, wanted_levels
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.drafters.hierarchy.plan import plans_by_size
from suffolk.serving.drafters.hierarchy.stack_spec import read_stack
from suffolk.serving.drafters.neural.early_exit.training import new_head
from suffolk.serving.engine.model.target import Target
from tests.support.tiny_models import tiny_model


def options(**changes: Any) -> HierarchyOptions:
    return HierarchyOptions(**({"rounds": 1, "max_new_tokens": 8} | changes))


def test_a_stack_that_is_named_twice_is_run_once() -> None:
    """Both had one name, and their runs ended in one list, of which the other lacked its own."""
    assert len(read_stacks(options(stack=["prompt-lookup:4", "prompt-lookup:4 > target"]))) == 1


def test_a_trained_exit_is_a_level_without_being_named_again(tmp_path: Path) -> None:
    """It was read, and left out of the plan."""
    new_head(Target.wrap(tiny_model()), 1, 8).save(tmp_path)
    asked = options(head=[tmp_path], draft_model="m", temperature=1e-6)
    warmths = (None, 0.0, 1e-6)
    assert wanted_levels(asked, []) == [
        ("prompt-lookup", None),
        *((name, warmth) for name in ("exit-1", "draft-model") for warmth in warmths),
    ]


def test_a_head_that_is_no_exit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InvalidArgument, match="is of kind eagle; levels are trained exits alone"):
        wanted_levels(options(head=[tmp_path]), [])


def test_more_models_than_a_stack_takes_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="16 models would draft; a stack takes 15 beside retrieval"):
        wanted_levels(options(exit=[*range(1, 17)]), [])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"draft_model": "m"}, "--draft-model m is level draft-model, which no --stack has"),
        ({"datastore": ["s"]}, "--datastore s is level datastore, which no --stack has"),
        ({"exit": [2]}, "--exit 2 is level exit-2, which no --stack has"),
    ],
)
def test_what_no_stack_uses_is_refused(changes: dict[str, Any], message: str) -> None:
    asked = options(stack=["prompt-lookup:4"], **changes)
    with pytest.raises(InvalidArgument, match=message):
        check_measuring(asked, read_stacks(asked))


def test_every_plan_is_a_stack_whatever_the_clock_said() -> None:
    """A deeper exit that seemed faster, or a model whose temperatures lay apart, made a plan that could not be run."""
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
