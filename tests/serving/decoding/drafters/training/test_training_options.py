"""Tests the options of a training run."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.drafters.training.options import Regeneration
from tests.support.training_runs import default_options


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"window": 7}, "window is 7; it must be between 8"),
        ({"batch": 1.5}, "batch is 1.5, of type float"),
        ({"draft_share": 0.0}, "draft_share is 0.0; it must be above 0 and at most 1"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0; it must be above 0"),
        ({"learning_rate": math.nan}, "learning_rate is nan"),
        ({"held_out": 0.6}, "held_out is 0.6; it must be between 0"),
        ({"steps": 3, "passes": 2.0}, "steps 3 and passes 2.0 are both given"),
        ({"passes": 0.0}, "passes is 0.0"),
        ({"dtype": "int8"}, "dtype is 'int8'; it must be one of auto, float32"),
        ({"seed": -1}, "seed is -1"),
        ({"corpora": ()}, "corpora: none given"),
    ],
)
def test_options_out_of_their_ranges_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        replace(default_options(), **wrong)


@pytest.mark.parametrize(
    "wrong",
    [{"temperature": -1.0}, {"temperature": 1e-7}, {"max_new_tokens": 0}, {"slots": 5000}, {"prompt_tokens": "4"}],
)
def test_regeneration_out_of_its_ranges_is_refused(wrong: dict[str, Any]) -> None:
    """Regression: bad temperatures used to be rejected only after the model was loaded."""
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        Regeneration(**wrong)


def test_steps_follow_from_passes() -> None:
    assert default_options(batch=4, accumulate=2, passes=3.0).count_steps(10) == 5  # 3 batches a pass
    assert default_options(batch=4).count_steps(9) == 3
    assert default_options(steps=7).count_steps(9) == 7
    assert default_options(passes=0.01).count_steps(2) == 1
