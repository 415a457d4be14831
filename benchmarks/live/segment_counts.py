"""Latency of drafts by the number and the sizes of the segments that are searched."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from suffolk.benchmarks.datastore_options import LiveBenchOptions
from suffolk.benchmarks.live.indexes import Ids, Pieces
from suffolk.benchmarks.report import quantiles_us
from suffolk.datastore import _native
from suffolk.datastore.draft_tree import RETRIEVED

SEGMENT_COUNTS = (8, 16)


def drafts_by_segments(pieces: Pieces, options: LiveBenchOptions) -> dict[str, Any]:
    """Latency of drafts from Python over the same documents in 1, 8 and 16 segments.

    ``falling``: half of what is left in each, as a live index keeps them; ``equal``: of equal size, as in files.
    """
    [documents] = pieces.parts(1, options.tokens)
    found = {"1": _drafts([documents], pieces, options)}
    for count in SEGMENT_COUNTS:
        found[f"{count} falling"] = _drafts(list(_halves(documents, count)), pieces, options)
        found[f"{count} equal"] = _drafts(list(pieces.parts(count, options.tokens)), pieces, options)
    return found


def _halves(documents: list[Ids], count: int) -> Iterator[list[Ids]]:
    left = documents
    for others in reversed(range(count)):
        size = max(1, min(len(left) // 2, len(left) - others)) if others else len(left)
        yield left[:size]
        left = left[size:]


def _drafts(parts: list[list[Ids]], pieces: Pieces, options: LiveBenchOptions) -> dict[str, float]:
    segments = [_one_segment(part, pieces) for part in parts]
    searcher = _native.MergedSearcher(segments, [1] * len(segments), 2)  # one index would merge them
    bounds = (options.max_match, options.min_match, options.max_depth, [options.max_nodes])
    seconds, nodes = [], 0
    for context in pieces.contexts:
        begin = time.perf_counter()
        tree = searcher.draft([context], *bounds, RETRIEVED)[0]
        seconds.append(time.perf_counter() - begin)
        nodes += len(tree)
    count = sum(segment.stats()["segments"] for segment in segments)
    for segment in segments:
        segment.close()
    return quantiles_us(seconds) | {"nodes": nodes / len(pieces.contexts), "segments": count}


def _one_segment(part: list[Ids], pieces: Pieces) -> _native.LiveIndex:
    index = _native.LiveIndex(pieces.vocab_size, pieces.order_depth, 2)
    lengths = np.array([len(piece) for piece in part], np.uint64)
    none = np.zeros(len(part), np.uint64)
    index.append(np.concatenate(part), lengths, none, [b""] * len(part), np.zeros(len(part), np.int64))
    index.settle()
    return index
