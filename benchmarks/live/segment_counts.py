"""Latency of drafts by the number of segments that are searched."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from suffolk.benchmarks.live.options import LiveOptions
from suffolk.benchmarks.live.pieces import Ids, Pieces
from suffolk.benchmarks.quantiles import quantiles_us
from suffolk.datastore import _native
from suffolk.datastore.draft_tree import RETRIEVED

SEGMENT_COUNTS = (1, 8, 16)


def drafts_by_segments(pieces: Pieces, options: LiveOptions) -> dict[str, Any]:
    """Latency of drafts from Python over the same documents in 1, 8 and 16 segments of equal size."""
    return {str(count): _drafts(pieces, options, count) for count in SEGMENT_COUNTS}


def _drafts(pieces: Pieces, options: LiveOptions, count: int) -> dict[str, float]:
    parts = [_one_segment(part, pieces) for part in pieces.parts(count, options.tokens)]
    searcher = _native.MergedSearcher(parts, [1] * len(parts), 2)  # one index would merge them
    bounds = (options.max_match, options.min_match, options.max_depth, [options.max_nodes])
    seconds, nodes = [], 0
    for context in pieces.contexts:
        begin = time.perf_counter()
        tree = searcher.draft([context], *bounds, RETRIEVED)[0]
        seconds.append(time.perf_counter() - begin)
        nodes += len(tree[0])
    segments = sum(part.stats()["segments"] for part in parts)
    for part in parts:
        part.close()
    return quantiles_us(seconds) | {"nodes": nodes / len(pieces.contexts), "segments": segments}


def _one_segment(part: list[Ids], pieces: Pieces) -> _native.LiveIndex:
    index = _native.LiveIndex(pieces.vocab_size, pieces.order_depth, 2)
    lengths = np.array([len(piece) for piece in part], np.uint64)
    none = np.zeros(len(part), np.uint64)
    index.append(np.concatenate(part), lengths, none, [b""] * len(part), np.zeros(len(part), np.int64))
    index.settle()
    return index
