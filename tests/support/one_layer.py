"""A target that Triton's interpreter runs quickly, and a comparison of its caches."""

from __future__ import annotations

from typing import Any

import torch

import tests.support.interpreted_kernels  # noqa: F401
from suffolk.serving.decoding.engine.model.kv_cache import KVCache
from suffolk.serving.decoding.engine.model.target import Target
from tests.support.tiny_models import tiny_model


def one_layer(**changes: Any) -> Target:
    """One key head and two query heads, in float32."""
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16} | changes
    return Target.wrap(tiny_model(**sizes).float(), accelerate=False)


def assert_equal_texts(cache: KVCache, expected: KVCache) -> None:
    """Check that the rows of all kept tokens are equal, bit by bit."""
    for slot, length in enumerate(expected.lengths.tolist()):
        rows = slice(slot * cache.capacity, slot * cache.capacity + length)
        for slab, other in zip(cache.slabs.values(), expected.slabs.values(), strict=True):
            assert torch.equal(slab[:, rows], other[:, rows])
