"""The loop stops calling drafters that are accurate but too slow."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from suffolk.benchmarks.decode.setup import slow_down
from suffolk.serving.decoding.drafters.neural.draft_model.drafter import DraftModelDrafter
from suffolk.serving.decoding.drafters.neural.early_exit.drafter import EarlyExitDrafter
from suffolk.serving.decoding.drafters.neural.early_exit.model import shallow
from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.loop.drafter import Drafter
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.step_loop import StepLoop
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support import eagle_heads, heads
from tests.support.drafters import Free, alone
from tests.support.tiny_models import VOCAB, tiny_model

TOKENS = 300
PROMPT = [(7 * number) % VOCAB for number in range(30)]


def draft_model(target: Target) -> Drafter:
    return DraftModelDrafter(target, VOCAB, capacity=400, costs=Free())


def early_exit(target: Target) -> Drafter:
    return EarlyExitDrafter(shallow(target, 1), costs=Free())


def redrafter(target: Target) -> Drafter:
    return heads.drafter_of(heads.random_head(target), target)


def eagle(target: Target) -> Drafter:
    return eagle_heads.drafter_of(eagle_heads.random_head(), capacity=400)


def prompt_lookup(target: Target) -> Drafter:
    return PromptLookupDrafter(VOCAB)


@pytest.mark.parametrize("make", [draft_model, early_exit, redrafter, eagle, prompt_lookup])
def test_a_slowed_drafter_is_given_up_and_the_text_stays(make: Callable[[Target], Drafter]) -> None:
    """Each draft takes fifty milliseconds longer. A plain step of this target takes one or two milliseconds."""
    target = Target.wrap(tiny_model())
    drafter = make(target)
    slow_down(drafter, 0.05)
    loop = StepLoop(target, {"slowed": drafter}, CostModel([1, 64], [0.001, 0.004]), 1, 400)
    settings = SamplingSettings(TOKENS, ignore_eos=True)
    request = Request(1, target, PROMPT, settings, "slowed", 16)
    loop.join(request)
    steps = 0
    while loop.running:
        loop.step()
        steps += 1
    assert request.generated == alone(target, PROMPT, settings)
    assert 1 <= drafter.stats()["calls"] <= 4
    assert steps > TOKENS / 2
