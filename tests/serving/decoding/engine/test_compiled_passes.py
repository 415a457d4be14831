"""Compiled passes equal packed ones. One graph serves all sizes, with the same logits and the same tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch._dynamo.utils import counters

from suffolk.datastore.errors import Unsupported
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.model.passes import Passes
from suffolk.serving.decoding.engine.model.skinny_gemm import SkinnyLinear, accelerate
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout, lay_out
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.drafters import MadeUpDrafter, random_tree
from tests.support.tiny_models import VOCAB, tiny_model

PROMPT = [(7 * number) % VOCAB for number in range(20)]


def trees(seed: int, *sizes: int) -> list[TreeLayout]:
    rng = np.random.default_rng(seed)
    return [lay_out(int(rng.integers(VOCAB)), random_tree(rng, size, VOCAB)) for size in sizes]


def graphs() -> int:
    """The number of graphs compiled in this process."""
    return int(counters["stats"]["unique_graphs"])


def test_one_graph_serves_all_sizes() -> None:
    """The test varies rows, requests, cached tokens and the cache, with a sliding window and capped scores.

    Then it compares the output of an engine, in the engine's thread, with and without drafts.
    """
    target, before = Target.wrap(tiny_model("gemma2")), graphs()
    for slots, capacity in ((3, 120), (4, 400)):
        caches = [target.new_cache(slots, capacity) for _ in range(2)]
        packed, compiled = (
            Passes(target, cache, kind) for cache, kind in zip(caches, ("packed", "compiled"), strict=True)
        )
        for cache in caches:
            for slot, length in ((2, 20), (0, 1), (1, 9)):
                target.prefill(PROMPT[:length], cache, slot)
        for seed, sizes in enumerate([(0,), (1,), (9, 0, 4), (3, 20, 1), (0, 0), (70,)]):
            taking, layouts = [2, 0, 1][: len(sizes)], trees(seed, *sizes)
            wanted = [len(layout) for layout in layouts]
            expected, found = (way.forward(taking, layouts, wanted).logits for way in (packed, compiled))
            assert found.shape == expected.shape
            assert (found - expected).abs().max() < 1e-5  # these models compute norms in fp32
            for cache in caches:  # later passes read the cache that compiled passes wrote
                cache.keep(taking, [np.arange(1)] * len(taking))
    assert graphs() == before + 1
    assert _texts(target, "compiled") == _texts(target, "packed")
    assert graphs() == before + 1


def _texts(target: Target, passes: str) -> list[list[int]]:
    rng = np.random.default_rng(3)
    drafter = MadeUpDrafter(lambda request: random_tree(rng, int(rng.integers(0, 12)), VOCAB))
    with Engine(target, {"random": drafter}, slots=2, capacity=80, passes=passes) as engine:
        generations = [
            engine.generate(PROMPT[: 1 + 4 * number], SamplingSettings(max_new_tokens=8 + number), name, 12)
            for number, name in enumerate(("random", "", "random"))
        ]
        for generation in generations:
            list(generation)
        return [list(generation.tokens) for generation in generations]


def test_the_kernel_is_an_operator_in_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("suffolk.serving.decoding.engine.model.skinny_gemm._MIN_WEIGHTS", 1)
    monkeypatch.setattr(
        "suffolk.serving.decoding.engine.model.skinny_gemm.faster_rows", lambda groups: frozenset({1, 2, 5, 7, 64})
    )
    target = Target.wrap(tiny_model(num_hidden_layers=1).to(torch.float32))
    assert any(isinstance(layer, SkinnyLinear) for layer in target.model.modules())
    cache = target.new_cache(1, 90)
    target.prefill(PROMPT, cache)
    packed, compiled = (Passes(target, cache, kind) for kind in ("packed", "compiled"))
    for size in (0, 1, 3, 4, 63, 64):
        layouts = trees(size, size)
        expected, found = (way.forward([0], layouts, [size + 1]).logits for way in (packed, compiled))
        assert (found - expected).abs().max() < 1e-3


def test_the_operator_gives_the_kernels_own_bits() -> None:
    layer: Any = torch.nn.Sequential(torch.nn.Linear(300, 400))
    for many in (False, True):
        taken = SkinnyLinear.take_over(layer[0], frozenset({1, 3, 64}), many)
        for count in (1, 2, 3, 63, 64, 65, 200):
            rows = torch.randn(1, count, 300)
            found = torch.ops.suffolk.skinny_gemm(rows, taken.weight, taken.bias, taken.kernel_bits, many)
            with torch.inference_mode():
                assert torch.equal(found, taken(rows))
    assert accelerate(layer) == 0  # it is already compiled


def test_a_model_that_cannot_be_compiled_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target.wrap(tiny_model(num_hidden_layers=1))
    forward = target.model.model.norm.forward

    def ask_for_a_number(states: torch.Tensor) -> Any:
        return forward(states) if float(states.sum()) > 0 else forward(states)

    monkeypatch.setattr(target.model.model.norm, "forward", ask_for_a_number)
    with pytest.raises(Unsupported, match="its passes cannot be compiled .*; use packed passes"):
        Passes(target, target.new_cache(1, 8), "compiled")


def test_hidden_states_are_refused() -> None:
    target = Target.wrap(tiny_model(num_hidden_layers=1))
    with pytest.raises(Unsupported, match="cannot be compiled .compiled passes give no hidden states.*use packed"):
        Passes(target, target.new_cache(1, 8), "compiled", [1])
