"""A model in ``Target.wrap`` generates the same greedy tokens as its ``model.generate``, with any drafter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.drafters import MadeUpDrafter, eager_decoder, knowing, random_tree
from tests.support.tiny_models import FAMILIES, VOCAB, tiny_model

PROMPT = [5, 6, 7, 8, 5, 6, 7, 9, 5, 6]
NEW = 24
SETTINGS: list[dict[str, Any]] = [{}, {"repetition_penalty": 1.3}]


@pytest.mark.parametrize("changes", SETTINGS, ids=["greedy", "repetition penalty"])
@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens_are_those_of_generate(family: str, changes: dict[str, Any]) -> None:
    model = tiny_model(family, attention="eager")
    options = {"do_sample": False, "max_new_tokens": NEW, "pad_token_id": 0} | changes
    [expected] = model.generate(torch.tensor([PROMPT]), **options)[:, len(PROMPT) :].tolist()
    target = Target.wrap(model)
    rng = np.random.default_rng(0)
    right = knowing(len(PROMPT), expected, 6, rng, VOCAB)
    for drafter in (None, PromptLookupDrafter(VOCAB), right, MadeUpDrafter(lambda _: random_tree(rng, 12, VOCAB))):
        drafted = eager_decoder(target, drafter).generate(PROMPT, SamplingSettings(NEW, **changes))
        list(drafted)
        assert drafted.tokens == expected
