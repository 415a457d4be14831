"""The target's first layers as its drafter: the same weights, the same cache, nothing left behind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from datastore.errors import InvalidArgument
from serving.decoding.cost_model import CostModel
from serving.decoding.request import Request
from serving.decoding.settings import SamplingSettings
from serving.decoding.target import Target
from serving.decoding.tree_layout import chain
from serving.drafters.early_exit.drafter import EarlyExitDrafter
from serving.drafters.early_exit.shallow import shallow
from serving.drafters.neural.tree_bounds import TreeBounds
from tests.drafters import alone, eager_decoder, eager_loop
from tests.tiny_models import FAMILIES, VOCAB, tiny_model

FREE = CostModel([1], [1e-12])
PROMPT = [(7 * number) % VOCAB for number in range(30)]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_first_layers_are_the_model_without_the_others(family: str) -> None:
    """The oracle is an untouched model whose own list of layers was cut; the whole model stays as it was."""
    target = Target.wrap(tiny_model(family))
    before = target.prefill(PROMPT, target.new_cache(1, 64))
    first = shallow(target, 1)
    found = first.prefill(PROMPT, target.new_cache(1, 64))
    oracle = tiny_model(family)
    _cut_layers(oracle, 1)
    with torch.inference_mode():
        expected = oracle(input_ids=torch.tensor([PROMPT]), use_cache=False).logits[:, -1]
    assert (found - expected).abs().max() < (1e-4 if family == "gemma2" else 1e-9)
    assert not torch.allclose(found, before)
    assert torch.equal(before, target.prefill(PROMPT, target.new_cache(1, 64)))
    assert torch.equal(before, shallow(target, 2).prefill(PROMPT, target.new_cache(1, 64)))


def _cut_layers(model: Any, layers: int) -> None:
    for module in model.modules():
        for name, child in module.named_children():
            if isinstance(child, torch.nn.ModuleList) and len(child) == 2:
                setattr(module, name, child[:layers])


def test_what_the_target_has_cached_serves_its_first_layers() -> None:
    target = Target.wrap(tiny_model())
    first, cache = shallow(target, 1), target.new_cache(1, 64)
    target.prefill(PROMPT[:-1], cache)
    row = chain(np.array(PROMPT[-1:]))
    found = first.forward(cache, [0], [row], [1]).logits
    assert torch.equal(found, first.prefill(PROMPT, target.new_cache(1, 64)))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("passes", ["packed", "captured"])
def test_all_layers_are_always_right(temperature: float, passes: str) -> None:
    settings = SamplingSettings(45, temperature, top_k=20, seed=3)
    target = Target.wrap(tiny_model())
    drafter = EarlyExitDrafter(target, target.layers, TreeBounds(max_depth=8, width=2, children=2), FREE)
    loop = eager_loop(target, {"early-exit": drafter}, slots=2, passes=passes)
    requests = [Request(number, target, PROMPT[number:], settings, "early-exit", 64) for number in (1, 2)]
    for request in requests:
        loop.join(request)
    while loop.running:
        loop.step()
    for number, request in enumerate(requests, 1):
        assert request.generated == alone(target, PROMPT[number:], settings)
        assert request.stats.steps == 5 and request.stats.accepted == 39


def test_a_tree_that_does_not_fit_the_cache_is_left_out() -> None:
    target, settings = Target.wrap(tiny_model()), SamplingSettings(20)
    drafter = EarlyExitDrafter(target, 1, TreeBounds(max_depth=10, width=10), FREE)
    run = eager_decoder(target, drafter, max_nodes=4).generate(PROMPT, settings)
    list(run)
    assert run.tokens == alone(target, PROMPT, settings)
    assert drafter.missed["ResourceExhausted"] > 0 and run.stats.missed["ResourceExhausted"] > 0


@pytest.mark.parametrize("layers", [0, 3])
def test_layers_that_it_has_not_are_refused(layers: int) -> None:
    with pytest.raises(InvalidArgument, match=f"layers is {layers}; it must be between 1 and 2"):
        EarlyExitDrafter(Target.wrap(tiny_model()), layers, costs=FREE)
