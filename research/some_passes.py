"""Passes over artificial contexts, to be timed: the cache holds random numbers, so that long contexts need no prefill."""

from __future__ import annotations

import numpy as np

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.engine.costs.cost_measurement import fill
from suffolk.serving.decoding.engine.model.kv_cache import KVCache
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout, lay_out


def filled_cache(target: Target, slots: int, capacity: int) -> KVCache:
    """A cache of ``target`` with random keys and values; its lengths are 0."""
    cache = target.new_cache(slots, capacity)
    fill(cache)
    return cache


def binary_tree(target: Target, size: int) -> TreeLayout:
    """A tree of ``size`` rows: the context's last token, its three children, and a binary tree below these."""
    parents = np.array([-1 if node < 3 else (node - 3) // 2 for node in range(size - 1)], np.int32)
    tokens = ((np.arange(size) * 7919 + 17) % target.vocab_size).astype(np.int32)
    ones = np.ones(size - 1)
    return lay_out(int(tokens[0]), DraftTree(tokens[1:], parents, ones.astype(np.float32), ones.astype(np.uint32)))
