"""Drafters get the hidden states of every committed token, once and in order, equal to those of an unmodified model."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
import torch

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument, Unsupported
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.step_loop import StepLoop
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.drafters import MadeUpDrafter, alone, eager_loop, random_tree
from tests.support.tiny_models import VOCAB, tiny_model

LAYERS = (0, 1, 2)


class FeatureBuffer(MadeUpDrafter):
    """Drafts random trees with the true next token at a random place, and records its features."""

    def __init__(self, layers: tuple[int, ...] = LAYERS, texts: dict[int, list[int]] | None = None) -> None:
        super().__init__(self._draft)
        self.layers = layers
        self.features: defaultdict[int, list[torch.Tensor]] = defaultdict(list)
        self.kept_up = True
        self._texts = texts or {}

    def follow(self, request_id: int, features: torch.Tensor) -> None:
        self.features[request_id].append(features)

    def _draft(self, request: DraftRequest) -> DraftTree:
        length = len(request.tokens)
        self.kept_up &= sum(map(len, self.features[request.request_id])) == length - 1
        rng = np.random.default_rng(length)
        tree = random_tree(rng, 6, VOCAB)
        roots = np.flatnonzero(tree.parents == -1)
        tree.tokens[roots[-1]] = (self._texts.get(request.request_id, []) + [0] * length)[length]
        return tree


def test_compiled_passes_give_none_and_nothing_is_compiled_to_find_out() -> None:
    target = Target.wrap(tiny_model())
    with pytest.raises(Unsupported, match="compiled passes give no hidden states, which a drafter needs"):
        StepLoop(target, {"follower": FeatureBuffer()}, passes="compiled")
    assert not target.shared


@pytest.mark.parametrize(
    ("family", "passes"),
    [("llama", "packed"), ("llama", "captured"), ("gpt2", "packed"), ("gemma3", "captured"), ("opt", "packed")],
)
def test_each_token_s_features_come_once_and_in_order(family: str, passes: str) -> None:
    settings = SamplingSettings(max_new_tokens=40)
    target, oracle = Target.wrap(tiny_model(family)), tiny_model(family)
    prompts = {1: list(range(90)) * 3, 2: list(range(50)) * 6, 3: [7]}  # the second is read in two parts
    texts = {number: prompt + alone(target, prompt, settings) for number, prompt in prompts.items()}
    follower = FeatureBuffer(texts=texts)
    loop = eager_loop(target, {"follower": follower}, slots=2, passes=passes)
    waiting = [Request(number, target, prompt, settings, "follower", 6) for number, prompt in prompts.items()]
    accepted = 0
    while waiting or loop.running:
        while waiting and loop.free:
            loop.join(waiting.pop(0))
        accepted += sum(len(step.tokens) - 1 for _, step in loop.step())
    assert accepted > 20
    assert follower.kept_up
    for number, text in texts.items():
        found = torch.cat(follower.features[number])[: len(text) - 1]  # also of rows after the end of the text
        with torch.inference_mode():
            states = oracle(torch.tensor([text]), output_hidden_states=True).hidden_states
        expected = torch.stack([states[layer][0] for layer in LAYERS], 1)[:-1]
        assert found.shape == expected.shape
        assert float((found - expected).abs().max()) < 1e-9


def test_each_drafter_gets_its_own_layers_and_a_fault_costs_drafts_only() -> None:
    class Failing(FeatureBuffer):
        def follow(self, request_id: int, features: torch.Tensor) -> None:
            raise ArithmeticError("no room")

    target, settings = Target.wrap(tiny_model()), SamplingSettings(max_new_tokens=20)
    drafters = {"first": FeatureBuffer((0,)), "last": FeatureBuffer((1, 2)), "failing": Failing()}
    with Engine(target, drafters, CostModel([1], [1.0]), slots=3, capacity=100) as engine:
        running = {name: engine.generate([3, 1, 4], settings, name) for name in [*drafters, "none"]}
        for generation in running.values():
            list(generation)
            assert generation.tokens == alone(target, [3, 1, 4], settings)
    for name, count in (("first", 1), ("last", 2)):
        (parts,) = drafters[name].features.values()
        assert {tuple(part.shape[1:]) for part in parts} == {(count, 32)}
    assert running["failing"].stats.draft_failures["ArithmeticError"] > 0


@pytest.mark.parametrize("layers", [(3,), (-1,), (1, 1), (2, 0)])
def test_layers_that_the_model_has_not_are_refused(layers: tuple[int, ...]) -> None:
    with pytest.raises(InvalidArgument, match="drafter one wants hidden states of layers .* has 0..2"):
        Engine(Target.wrap(tiny_model()), {"one": FeatureBuffer(layers)}, CostModel([1], [1.0]), capacity=100)
