"""Measures the search and draft of a context by the size of a segment, and the sort of a build."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from suffolk.benchmarks.building.sorting import ended, read_tokens
from suffolk.benchmarks.folder import first_tokens
from suffolk.benchmarks.service.measure import MAX_DEPTH
from suffolk.datastore import _native
from suffolk.datastore.datastore import Datastore, open_datastore

MAX_MATCH = 16
CUT_TOKENS, SORTED_TOKENS = 1 << 20, 1 << 22
BATCH = 32
_ROUNDS = 3


def measure_search(
    store: Datastore, workdir: Path, contexts: Sequence[Any], max_nodes: int
) -> tuple[dict[str, Any], float]:
    """Measure the costs of a search, by field of ``ServiceCosts``, and the seconds of a context in the whole datastore.

    Searches the datastore, and one segment with its first tokens. The files are in memory, after the first round.
    """
    sizes = [entry.tokens for entry in store.manifest.segments]
    cut = max(1, min(CUT_TOKENS, sum(sizes) // 8))
    small, _ = _seconds(first_tokens(store, cut, workdir), contexts, max_nodes)
    whole, spread = _seconds(store.path, contexts, max_nodes)
    doublings = sum(float(np.log2(max(size, 1) / cut)) for size in sizes)
    doubling = max(0.0, (whole - len(sizes) * small) / doublings) if doublings > 0 else 0.0
    found = {"segment_s": small, "segment_tokens": cut, "doubling_s": doubling, "search_spread": spread}
    return found, whole


def sorted_per_second(store: Datastore) -> float:
    """Measure the tokens that one thread sorts in a second, in a segment of at most SORTED_TOKENS."""
    tokens = ended(read_tokens(store, SORTED_TOKENS))
    begin = time.process_time()
    _native.sort_suffixes(tokens, store.manifest.vocab_size, store.manifest.order_depth, 1)
    return len(tokens) / (time.process_time() - begin)


def _seconds(path: Path, contexts: Sequence[Any], max_nodes: int) -> tuple[float, float]:
    """Measure the processor seconds of a context in batches, and the spread of single contexts."""
    batches = [contexts[start : start + BATCH] for start in range(0, len(contexts), BATCH)]
    with open_datastore(path, threads=1) as store:
        rounds = []
        for _ in range(_ROUNDS):
            begin = time.process_time()
            for batch in batches:
                store.draft_batch(batch, MAX_MATCH, 1, MAX_DEPTH, max_nodes)
            rounds.append((time.process_time() - begin) / len(contexts))
        single = []
        for context in contexts:
            begin = time.process_time()
            store.draft_batch([context], MAX_MATCH, 1, MAX_DEPTH, max_nodes)
            single.append(time.process_time() - begin)
    return min(rounds), float(np.std(single) / np.mean(single))
