"""Measures the quality of answers: exact counts, accepted length, and errors in draftretriever's trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from suffolk.benchmarks.datastore_options import RetrievalBenchOptions
from suffolk.benchmarks.retrieval.contexts import ContextSet
from suffolk.benchmarks.retrieval.draftretriever_package import SHORTEST, DraftRetriever, prefixes
from suffolk.datastore.datastore import Datastore
from suffolk.datastore.errors import Internal
from suffolk.datastore.tree_paths import tree_paths

Path = tuple[int, ...]


class CorpusScan:
    """All documents in one array, which every query scans. Memory: 4 bytes a token."""

    def __init__(self, tokens: npt.NDArray[np.uint32], starts: npt.NDArray[np.int64]) -> None:
        self._tokens = tokens
        self._starts = starts

    def lookup(self, context: Sequence[int], max_match: int, min_match: int) -> tuple[int, int]:
        """Return length and count of the longest match; (0, 0) if there is none."""
        length, ends = self._longest(context, max_match)
        return (length, len(ends)) if length >= min_match else (0, 0)

    def draft(
        self, context: Sequence[int], max_match: int, min_match: int, max_depth: int, max_nodes: int
    ) -> list[tuple[Path, int]]:
        """Return (path, count) of the draft tree's nodes, ordered by falling count, then depth, then tokens."""
        length, ends = self._longest(context, max_match)
        if length < min_match or not length:
            return []
        # the end of each position's document
        limits = self._starts[np.searchsorted(self._starts, ends - 1, side="right")]
        places = ends
        nodes: list[tuple[Path, int]] = []
        groups = np.zeros(len(places), np.int64)  # the parent node of each occurrence
        names: list[Path] = [()]
        for depth in range(max_depth):
            inside = places + depth < limits
            places, limits, groups = places[inside], limits[inside], groups[inside]
            keys = groups << 32 | self._tokens[places + depth]
            found, groups, counts = np.unique(keys, return_inverse=True, return_counts=True)
            names = [(*names[int(key >> 32)], int(key & 0xFFFFFFFF)) for key in found]
            nodes.extend(zip(names, counts.tolist(), strict=True))
        return sorted(nodes, key=lambda node: (-node[1], len(node[0]), node[0]))[:max_nodes]

    def _longest(self, context: Sequence[int], max_match: int) -> tuple[int, npt.NDArray[np.int64]]:
        """Return the length of the longest match, and the positions after its occurrences."""
        length, ends = 0, np.empty(0, np.int64)
        for size in range(1, min(max_match, len(context)) + 1):
            token = context[len(context) - size]
            if size == 1:
                longer = np.flatnonzero(self._tokens == token) + 1
            else:
                begins = self._starts[np.searchsorted(self._starts, ends - 1, side="right") - 1]
                inside = ends[ends - size >= begins]
                longer = inside[self._tokens[inside - size] == token]
            if not len(longer):
                break
            length, ends = size, longer
        return length, ends


def accepted_length(paths: set[Path], continuation: Sequence[int]) -> int:
    """Count the tokens of a tree with these paths that a target accepts if it generates ``continuation``."""
    depth = 0
    while depth < len(continuation) and tuple(continuation[: depth + 1]) in paths:
        depth += 1
    return depth


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
    """Return the mean match length, tree size and accepted length over all contexts, for Suffolk and for draftretriever."""
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

    The errors are measured by the share of repeated queries with a different answer, by the number of context tokens that the
    package uses, and by the share of nodes that never occur in the corpus.
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
