"""Measures latency of lookups and drafts, in process and over gRPC, compared to the draftretriever package."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suffolk.benchmarks.datastore_options import RetrievalBenchOptions
from suffolk.benchmarks.folder import first_tokens
from suffolk.benchmarks.parts import Call, time_rounds
from suffolk.benchmarks.processes import grown_memory, resident_memory
from suffolk.benchmarks.report import quantiles_us
from suffolk.benchmarks.retrieval.contexts import ContextSet, join_documents, sample_files, sample_seen, spoil
from suffolk.benchmarks.retrieval.draftretriever_package import DraftRetriever, cached_index
from suffolk.benchmarks.retrieval.quality import CorpusScan, check_counts, compare_trees
from suffolk.benchmarks.service.load import served
from suffolk.build_index.progress import tracked
from suffolk.datastore.datastore import Datastore, open_datastore
from suffolk.datastore.retriever import Retriever

GRPC_DEADLINE_S = 10.0
DRAFT, BOTH = "draft", "lookup+draft"
RIVAL = "draftretriever"
RIVAL_LOOP = "draftretriever, suffix loop"


def measure_retrieval(options: RetrievalBenchOptions) -> dict[str, Any]:
    """Run the whole measurement; return the results by name, with times in microseconds.

    Raises:
        NotFound, Corruption: the datastore or a text file is missing or damaged.
        Unsupported: draftretriever is selected, but not installed.
    """
    path = options.store
    if options.tokens is not None:
        with open_datastore(path) as whole:
            path = first_tokens(whole, options.tokens, options.workdir)
    sets, scan = _prepare(path, options)
    index, built = cached_index(path, options.workdir / path.name) if options.against else (None, None)
    before = resident_memory()
    with open_datastore(path) as store:
        opened = grown_memory(before)
        results: dict[str, Any] = {"datastore": _facts(store), "draftretriever_index": built}
        for each in sets:  # this loads all pages that the queries need. The pages then count as Suffolk's memory
            time_rounds(_calls(store, options), each.first(options.called).contexts, 0, options.seed)
        memory = {"suffolk": {"opened": opened, "asked": grown_memory(before)}}
        before = resident_memory()
        rival = None if index is None else DraftRetriever(index)
        opened = grown_memory(before)
        results["native"] = measure_native(store, sets, options)
        measured = ((each.name, _measure_set(store, rival, scan, each, options)) for each in sets)
        results["sets"] = dict(tracked(measured, len(sets), "kinds of contexts"))
        if rival is not None:
            memory["draftretriever"] = {"opened": opened, "asked": grown_memory(before)}
            results["draftretriever_searches"] = rival.searches
        results["memory_bytes"] = memory
        results["batches"] = _measure_batches(path, store, sets, options)
    return results


def _prepare(path: Path, options: RetrievalBenchOptions) -> tuple[list[ContextSet], CorpusScan]:
    """Return contexts and the whole corpus. The datastore is closed again, because its pages must not count as memory."""
    with open_datastore(path) as store:
        tokens, starts = join_documents(store)
        size, depth = options.context, options.max_depth
        seen = sample_seen(tokens, starts, options.queries, size, depth, options.seed)
        if options.unseen:
            unseen = sample_files(store, options.unseen, options.queries, size, depth, options.seed + 1)
        else:
            unseen = spoil(seen, store.manifest.vocab_size, options.seed + 1)
    return [seen, unseen], CorpusScan(tokens, starts)


def _measure_set(
    store: Datastore, rival: DraftRetriever | None, scan: CorpusScan, each: ContextSet, options: RetrievalBenchOptions
) -> dict[str, Any]:
    calls = _calls(store, options)
    called = each.first(options.called)
    results: dict[str, Any] = {"how": each.how}
    if rival is None:
        seconds = time_rounds(calls, called.contexts, options.rounds, options.seed)
    else:
        rivals: dict[str, Call] = {RIVAL: rival.search, RIVAL_LOOP: rival.search_suffixes}
        seconds = time_rounds({**calls, **rivals}, called.contexts, options.rounds, options.seed)
        drafts = {DRAFT: calls[DRAFT], **rivals}
        mixed = time_rounds(drafts, called.contexts, options.rounds, options.seed, alternating=True)
        results["alternating"] = {name: quantiles_us(times) for name, times in mixed.items()}
        results["times_faster"] = {
            f"{ours} against {name}": {"in_rounds": _ratios(seconds[ours], seconds[name])}
            for ours in (DRAFT, BOTH)
            for name in rivals
        }
        for name in rivals:
            results["times_faster"][f"{DRAFT} against {name}"]["in_turn"] = _ratios(mixed[DRAFT], mixed[name])
    results["latency"] = {name: quantiles_us(times) for name, times in seconds.items()}
    results["drafts"] = compare_trees(store, rival, called, options)
    results["checked_by_scan"] = check_counts(store, scan, each, options)
    return results


def _calls(store: Datastore, options: RetrievalBenchOptions) -> dict[str, Call]:
    match = options.max_match, options.min_match
    size = options.max_depth, options.max_nodes
    return {
        "lookup": lambda context: store.lookup(context, *match),
        DRAFT: lambda context: store.draft(context, *match, *size),
        BOTH: lambda context: (store.lookup(context, *match), store.draft(context, *match, *size)),
    }


def _measure_batches(
    path: Path, store: Datastore, sets: Sequence[ContextSet], options: RetrievalBenchOptions
) -> dict[str, Any]:
    if not options.grpc:
        return {}
    from suffolk.serving.clients.remote_datastore import connect  # load gRPC only if it is measured

    with served(path) as url, connect(url, GRPC_DEADLINE_S) as remote:
        measured = ((each.name, _measure_ways(store, remote, each.first(options.called), options)) for each in sets)
        return dict(tracked(measured, len(sets), "kinds of contexts, in batches"))


def _measure_ways(
    store: Retriever, remote: Retriever, each: ContextSet, options: RetrievalBenchOptions
) -> dict[str, dict[str, dict[str, float]]]:
    """Map transport and call -> batch size -> quantiles."""
    results: dict[str, dict[str, dict[str, float]]] = {}
    for size in options.batches:
        calls = {
            f"{way}, {call}": asked
            for way, retriever in (("in-process", store), ("grpc", remote))
            for call, asked in _batch_calls(retriever, options).items()
        }
        whole = range(0, len(each.contexts) - size + 1, size)
        batches = [each.contexts[start : start + size] for start in whole]
        for name, times in time_rounds(calls, batches, options.rounds, options.seed).items():
            results.setdefault(name, {})[str(size)] = quantiles_us(times)
    return results


def _batch_calls(retriever: Retriever, options: RetrievalBenchOptions) -> dict[str, Call]:
    match = options.max_match, options.min_match
    size = options.max_depth, options.max_nodes
    return {
        "lookup": lambda contexts: retriever.lookup_batch(contexts, *match),
        "draft": lambda contexts: retriever.draft_batch(contexts, *match, *size),
    }


def _ratios(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    one, other = quantiles_us(ours), quantiles_us(theirs)
    return {name.removesuffix("_us"): other[name] / one[name] for name in ("p50_us", "p99_us")}


def _facts(store: Datastore) -> dict[str, Any]:
    facts = store.info()
    return {name: facts[name] for name in ("path", "tokens", "documents", "bytes", "bytes_per_token", "vocab_size")}


Seconds = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]


def measure_native(store: Datastore, sets: Sequence[ContextSet], options: RetrievalBenchOptions) -> dict[str, Any]:
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


def _clock(store: Datastore, contexts: Sequence[Sequence[int]], options: RetrievalBenchOptions) -> Seconds:
    """Return for each context the median time of its lookups and of its drafts, after one warm-up round."""
    rounds = [
        store.clock(contexts, options.max_match, options.min_match, options.max_depth, options.max_nodes)
        for _ in range(options.rounds + 1)
    ][1:]
    lookups, drafts = (np.median([seconds[part] for seconds in rounds], axis=0) for part in (0, 1))
    return lookups, drafts
