"""Measures the quality of answers: exact counts, accepted length, and errors in draftretriever's trees."""

from __future__ import annotations

from typing import Any

import numpy as np

from suffolk.benchmarks.datastore_options import RetrievalBenchOptions
from suffolk.benchmarks.retrieval.contexts import ContextSet
from suffolk.benchmarks.retrieval.draftretriever_package import SHORTEST, DraftRetriever, prefixes
from suffolk.benchmarks.retrieval.exactness import CorpusScan, accepted_length
from suffolk.datastore.datastore import Datastore
from suffolk.datastore.errors import Internal
from suffolk.datastore.tree_paths import tree_paths


def check_counts(
    store: Datastore, scan: CorpusScan, each: ContextSet, options: RetrievalBenchOptions
) -> dict[str, Any]:
    """Compare the answers for the first contexts to a scan of every token; return the number of comparisons.

    Raises:
        Internal: an answer differs, so the measured times mean nothing.
    """
    match = options.max_match, options.min_match
    nodes = 0
    for context in each.contexts[: options.checked]:
        tree = store.draft(context, *match, options.max_depth, options.max_nodes)
        assert tree.counts is not None
        found = list(zip(map(tuple, tree_paths(tree)), tree.counts.tolist(), strict=True))
        truth = scan.draft(context, *match, options.max_depth, options.max_nodes)
        pair = scan.lookup(context, *match)
        if store.lookup(context, *match) != pair or (tree.match_length, tree.match_count) != pair or found != truth:
            raise Internal(
                f"{store.path}: the answer for context {context} differs from a scan of the corpus; report this as a bug"
            )
        nodes += len(found)
    return {"contexts": min(options.checked, len(each.contexts)), "nodes": nodes, "all_exact": True}


def compare_trees(
    store: Datastore, rival: DraftRetriever | None, each: ContextSet, options: RetrievalBenchOptions
) -> dict[str, Any]:
    """Return mean match length, tree size and accepted length over all contexts, and the same for draftretriever."""
    trees = [
        store.draft(context, options.max_match, options.min_match, options.max_depth, options.max_nodes)
        for context in each.contexts
    ]
    results: dict[str, Any] = {
        "mean_match_length": _mean([tree.match_length for tree in trees]),
        "found": _mean([tree.match_length > 0 for tree in trees]),
        "mean_nodes": _mean([len(tree) for tree in trees]),
        "mean_accepted": _mean(
            [
                accepted_length(set(map(tuple, tree_paths(tree))), true)
                for tree, true in zip(trees, each.continuations, strict=True)
            ]
        ),
    }
    if rival is not None:
        results["draftretriever"] = _judge_rival(store, rival, each)
    return results


def _judge_rival(store: Datastore, rival: DraftRetriever, each: ContextSet) -> dict[str, Any]:
    """Return statistics of draftretriever's trees, and three measures of their errors.

    These measures are the share of repeated queries with another answer, the number of context tokens that the package
    uses, and the share of nodes that never occur in the corpus.
    """
    trees = [prefixes(rival.search_suffixes(context)) for context in each.contexts]
    again = [prefixes(rival.search_suffixes(context)) for context in each.contexts]
    paths = [(context, path) for context, tree in zip(each.contexts, trees, strict=True) for path in tree]
    absent = [
        store.lookup([*context[-SHORTEST:], *path], SHORTEST + len(path), SHORTEST + len(path)).count == 0
        for context, path in paths
    ]
    return {
        "found": _mean([bool(tree) for tree in trees]),
        "mean_nodes": _mean([len(tree) for tree in trees]),
        "mean_accepted": _mean(
            [accepted_length(tree, true) for tree, true in zip(trees, each.continuations, strict=True)]
        ),
        "tokens_of_context_used": SHORTEST,
        "answers_differing_when_asked_again": _mean([a != b for a, b in zip(trees, again, strict=True)]),
        "nodes_never_in_corpus_after_those_tokens": _mean(absent),
        "counts_given": False,
    }


def _mean(values: list[Any]) -> float:
    return float(np.mean(values)) if values else 0.0
