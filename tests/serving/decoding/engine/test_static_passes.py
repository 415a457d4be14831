"""Passes of static shape equal packed ones. They give the same logits and tokens, for any other contents of the cache."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch

from suffolk.datastore.errors import InvalidArgument, Unsupported
from suffolk.serving.decoding.engine.costs.cost_measurement import time_points
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.model.grid_attention import Bucket, Grid
from suffolk.serving.decoding.engine.model.kv_cache import KVCache, SlabLayer
from suffolk.serving.decoding.engine.model.passes import Passes, bucket_for
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout, chain, lay_out
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.drafters import MadeUpDrafter, eager_loop, random_tree
from tests.support.tiny_models import FAMILIES, VOCAB, tiny_model

PROMPT = [(7 * number) % VOCAB for number in range(20)]


def trees(seed: int, *sizes: int) -> list[TreeLayout]:
    rng = np.random.default_rng(seed)
    return [lay_out(int(rng.integers(VOCAB)), random_tree(rng, size, VOCAB)) for size in sizes]


@pytest.mark.parametrize("family", FAMILIES)
def test_static_passes_equal_packed_ones(family: str) -> None:
    """The pass has three requests, longer and shorter than a sliding window, and an idle slot.

    It is repeated after accepted nodes.
    """
    target = Target.wrap(tiny_model(family))
    caches = [target.new_cache(5, 60) for _ in range(2)]
    ways = [Passes(target, cache, kind) for cache, kind in zip(caches, ("packed", "captured"), strict=True)]
    assert [way.special is None for way in ways] == [True, False]
    slots = [3, 0, 1]
    for cache in caches:
        for slot, length in zip(slots, (20, 1, 9), strict=True):
            target.prefill(PROMPT[:length], cache, slot)
    for seed, sizes in ((0, (9, 0, 4)), (1, (3, 20, 1))):
        layouts = trees(seed, *sizes)
        wanted = [len(layout) for layout in layouts]
        packed, static = (way.forward(slots, layouts, wanted).logits for way in ways)
        assert static.shape == packed.shape
        assert (static - packed).abs().max() < 1e-9
        for cache in caches:
            cache.keep(slots, [np.flatnonzero(path(layout)) for layout in layouts])


def path(layout: TreeLayout) -> Any:
    """Return the rows that the last row attends to: its path from the root."""
    return np.ones(len(layout), np.bool_) if layout.visible is None else layout.visible[-1]


def test_trees_of_more_rows_than_a_word_has_bits() -> None:
    target = Target.wrap(tiny_model())
    caches = [target.new_cache(1, 160) for _ in range(2)]
    found = []
    for cache, kind in zip(caches, ("packed", "captured"), strict=True):
        target.prefill(PROMPT, cache)
        found += [
            Passes(target, cache, kind).forward([0], layouts, [len(layouts[0])]).logits for layouts in (trees(2, 129),)
        ]
    assert (found[0] - found[1]).abs().max() < 1e-9


@pytest.mark.parametrize("family", ["llama", "mistral"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_text_is_that_of_packed_passes(family: str, temperature: float) -> None:
    """Five requests share three slots, with different prompt lengths and random trees.

    They join and leave at different times.
    """
    target = Target.wrap(tiny_model(family))
    texts = []
    for passes, drafted in (("packed", False), ("captured", False), ("captured", True)):
        rng = np.random.default_rng(3)
        drafter = MadeUpDrafter(lambda request, rng=rng: random_tree(rng, int(rng.integers(0, 12)), VOCAB))
        loop = eager_loop(target, {"random": drafter} if drafted else {}, 3, 80, passes)
        name = "random" if drafted else ""
        requests = [
            Request(number, target, PROMPT[: 1 + 4 * number], SamplingSettings(8 + number, temperature), name, 12)
            for number in range(5)
        ]
        waiting = list(requests)
        while waiting or loop.running:
            while waiting and loop.free:
                loop.join(waiting.pop(0))
            loop.step()
        texts.append([request.generated for request in requests])
    assert texts[0] == texts[1] == texts[2]
    assert [len(text) for text in texts[0]] == [8, 9, 10, 11, 12]


def test_an_engine_takes_them_and_measures_them() -> None:
    """The costs are measured with one cache, which is divided anew for every point."""
    target = Target.wrap(tiny_model())
    points = [(1, 1, 5), (4, 3, 9), (2, 1, 30)]
    samples = time_points(target, points, rounds=1, passes="captured")
    assert [(sample.rows, sample.requests, sample.context) for sample in samples] == [(1, 1, 5), (12, 3, 9), (2, 1, 30)]
    texts = []
    for passes in ("packed", "captured"):
        with Engine(target, slots=2, capacity=64, passes=passes) as engine:
            generation = engine.generate(PROMPT, SamplingSettings(max_new_tokens=10))
            list(generation)
            texts.append(generation.tokens)
    assert texts[0] == texts[1]
    with pytest.raises(InvalidArgument, match="passes is 'graphs'"):
        Engine(target, passes="graphs")


def test_what_a_request_leaves_behind_does_not_show() -> None:
    """A token without an embedding affects only its own request. The next request in the slot multiplies its rows by 0."""
    model = tiny_model()
    with torch.no_grad():
        model.model.embed_tokens.weight[5] = torch.nan
    target = Target.wrap(model)
    cache = target.new_cache(1, 40)
    passes = Passes(target, cache, "captured")
    target.prefill([3, 5, 5, 5, 5], cache)
    assert passes.forward([0], [chain(np.array([5]))], [1]).logits.isnan().all()
    cache.clear(0)
    target.prefill(PROMPT[:2], cache)
    found = passes.forward([0], [chain(np.array([7]))], [1]).logits
    fresh = target.new_cache(1, 40)
    target.prefill(PROMPT[:2], fresh)
    assert (found - target.forward(fresh, [0], [chain(np.array([7]))], [1]).logits).abs().max() < 1e-9


def test_rows_of_padding_write_into_no_slot() -> None:
    target = Target.wrap(tiny_model())
    cache = target.new_cache(2, 24)
    target.prefill(PROMPT[:6], cache, 0)
    passes = Passes(target, cache, "captured")
    before = [(layer.keys.clone(), layer.values.clone()) for layer in slab_layers(cache)]
    passes.forward([0], trees(4, 4), [5])  # a bucket of eight rows
    for layer, (keys, values) in zip(slab_layers(cache), before, strict=True):
        changed = ((layer.keys != keys) | (layer.values != values)).flatten(1).any(1)
        assert np.flatnonzero(changed.numpy()).tolist() == [*range(6, 11), cache.spare]


def slab_layers(cache: KVCache) -> list[SlabLayer]:
    return [layer for layer in cache.layers.layers if isinstance(layer, SlabLayer)]


def test_prompts_and_large_passes_are_packed() -> None:
    target = Target.wrap(tiny_model())
    cache = target.new_cache(1, 400)
    passes = Passes(target, cache, "captured")
    assert passes.forward([0], [chain(np.arange(20))], [1]).logits.shape[0] == 1
    assert passes.forward([0], [chain(np.arange(300) % VOCAB)], [300]).logits.shape[0] == 300


def test_buckets_are_powers_of_two_or_the_caches_own_sizes() -> None:
    cache = Target.wrap(tiny_model()).new_cache(6, 300)
    assert bucket_for(cache, [0], trees(0, 0)) == Bucket(1, 1, 1, 256)
    assert bucket_for(cache, [2, 0], trees(0, 4, 2)) == Bucket(8, 4, 8, 256)
    cache.lengths[5] = 255
    assert bucket_for(cache, [5], trees(0, 0)) == Bucket(1, 6, 1, 256)
    assert bucket_for(cache, [5], trees(0, 1)) == Bucket(2, 6, 2, 300)


def test_on_a_cpu_passes_are_packed_if_nobody_asks_otherwise() -> None:
    target = Target.wrap(tiny_model())
    assert Passes(target, target.new_cache(1, 8)).special is None
    with pytest.raises(InvalidArgument, match="passes is 'fast'.*; it must be one of auto, packed, captured"):
        Passes(target, target.new_cache(1, 8), "fast")


def test_static_passes_that_differ_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mask of this test ignores the tree. This is detected before decoding."""
    target = Target.wrap(tiny_model())
    seen = Grid._seen
    monkeypatch.setattr(Grid, "_seen", lambda self, window: seen(self, window) | True)
    with pytest.raises(Unsupported, match="cannot be captured .they differ from packed ones by .*; use packed passes"):
        Passes(target, target.new_cache(1, 8), "captured")


def test_a_capture_that_fails_later_leaves_packed_passes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With ``auto``, as on CUDA, packed passes are used instead. With ``captured``, the failure is an error."""
    target = Target.wrap(tiny_model())
    layouts = [chain(np.array([7]))]

    def fail(self: Any, slots: Any, layouts: Any) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    for kind in ("captured", "auto"):
        passes = Passes(target, target.new_cache(1, 8), "captured")
        passes._asked = kind
        monkeypatch.setattr(passes.special.__class__, "prepare", fail)
        if kind == "captured":
            with pytest.raises(Unsupported, match="not permitted when stream is capturing"):
                passes.prepare([0], layouts, [1])
            monkeypatch.undo()
    with caplog.at_level(logging.WARNING):
        passes.prepare([0], layouts, [1])
    assert "using packed ones" in caplog.text
    assert passes.forward([0], layouts, [1]).logits.shape == (1, VOCAB)
    assert passes.special is None
