"""Measures latency of lookups and drafts in the C++ core, without Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from suffolk.benchmarks.quantiles import quantiles_us
from suffolk.benchmarks.retrieval.contexts import ContextSet
from suffolk.benchmarks.retrieval.options import RetrievalOptions
from suffolk.datastore.datastore import Datastore

Seconds = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]


def measure_native(store: Datastore, sets: Sequence[ContextSet], options: RetrievalOptions) -> dict[str, Any]:
    """Return quantiles over all contexts of each set, and the slowest context of one token.

    A context's time is the median of its ``rounds``, which removes interruptions by other programs.
    """
    results: dict[str, Any] = {}
    for each in sets:
        lookups, drafts = _clock(store, each.contexts, options)
        results[each.name] = {
            "lookup": quantiles_us(lookups),
            "draft": quantiles_us(drafts),
            "lookup+draft": quantiles_us(lookups + drafts),
        }
    single = replace(options, min_match=1)
    lookups, drafts = _clock(store, [[token] for token in range(store.manifest.vocab_size)], single)
    slowest = int(np.argmax(drafts))
    results["one_token"] = {
        "contexts": len(drafts),
        "slowest_lookup_us": float(lookups.max()) * 1e6,
        "slowest_draft_us": float(drafts.max()) * 1e6,
        "slowest_token": slowest,
        "its_count": store.lookup([slowest]).count,
        "draft": quantiles_us(drafts),
    }
    return results


def _clock(store: Datastore, contexts: Sequence[Sequence[int]], options: RetrievalOptions) -> Seconds:
    """Return for each context the median time of its lookups and of its drafts, after one warm-up round."""
    rounds = [
        store.clock(contexts, options.max_match, options.min_match, options.max_depth, options.max_nodes)
        for _ in range(options.rounds + 1)
    ][1:]
    lookups, drafts = (np.median([seconds[part] for seconds in rounds], axis=0) for part in (0, 1))
    return lookups, drafts
