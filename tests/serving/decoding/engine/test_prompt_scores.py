"""Tests log-probabilities of prompts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.tiny_models import VOCAB, tiny_model

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def target() -> Target:
    return Target.wrap(tiny_model(max_position_embeddings=2048), name="tiny")


@pytest.mark.parametrize("length", [1, 2, 64, 513, 1100])  # prompts are read in chunks of 512 tokens
def test_they_are_those_of_one_forward_pass(target: Target, length: int) -> None:
    prompt = RNG.integers(0, VOCAB, length).tolist()
    settings = SamplingSettings(5, prompt_logprobs=3, logprobs=0)
    with Engine(target, slots=3, capacity=2048) as engine:
        others = [engine.generate([*prompt, at], SamplingSettings(40, ignore_eos=True)) for at in range(2)]
        found = engine.generate(prompt, settings)
        plain = engine.generate(prompt, SamplingSettings(5))
        tokens = [token for step in found for token in step.tokens]
        assert tokens == [token for step in plain for token in step.tokens]
        assert all(len(list(other)) for other in others)
    with torch.inference_mode():
        expected = tiny_model(max_position_embeddings=2048)(torch.tensor([prompt])).logits[0].log_softmax(-1)
    scores = found.prompt_log_probabilities
    assert [each.token for each in scores] == prompt[1:]
    for row, each in zip(expected, scores, strict=False):
        assert each.value == pytest.approx(float(row[each.token]))
        assert [token for token, _ in each.alternatives] == row.topk(3).indices.tolist()
    assert found.log_probabilities[0].value == pytest.approx(float(expected[-1][tokens[0]]))


def test_a_request_that_asks_for_them_is_not_drafted(target: Target) -> None:
    from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter

    with Engine(target, {"prompt-lookup": PromptLookupDrafter(VOCAB)}, CostModel([1], [1.0]), capacity=2048) as engine:
        for _ in range(2):
            list(engine.generate([5, 6] * 30, SamplingSettings(20, prompt_logprobs=0), "prompt-lookup"))
        assert engine.stats()["draft_calls"] == 0
