"""Packs the contexts, matches and trees of a batch as columns (draft.proto), and validates columns that were received.

A column holds the values of all queries, one query after another. One numpy call on a column costs less than a call for
each query.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from suffolk.datastore import limits
from suffolk.datastore.context_query import DEFAULT_MAX_NODES, Tokens
from suffolk.datastore.draft_tree import RETRIEVED, DraftTree
from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.datastore.retriever import Match
from suffolk.datastore.tree_paths import Paths
from suffolk.serving.net.proto import draft_pb2
from suffolk.serving.net.tokens import TOKEN, to_tokens, unpack

SIZE = np.dtype("<u4")
SCORE = np.dtype("<f4")
COUNT = np.dtype("<u8")
Ids = npt.NDArray[np.int32]


def pack_contexts(contexts: Sequence[Tokens], max_match: int) -> dict[str, Any]:
    """The fields ``contexts`` and ``lengths`` of a request with the last ``max_match`` tokens of each context."""
    limits.check_batch(len(contexts))
    tails = [
        to_tokens(context[max(0, len(context) - max_match) :], f"contexts[{index}]")
        for index, context in enumerate(contexts)
    ]
    return {"contexts": pack_tokens(tails), "lengths": pack_sizes(map(len, tails))}


def unpack_contexts(
    request: draft_pb2.DraftRequest | draft_pb2.LookupRequest | draft_pb2.CountRequest,
) -> list[Ids]:
    """The contexts of a request, not copied. Raises InvalidArgument if they are malformed or too many."""
    limits.check_batch(len(request.lengths) // SIZE.itemsize)  # before there is an array for each
    return unpack_parts(request.contexts, request.lengths, "contexts")


def pack_tokens(parts: Sequence[Ids]) -> bytes:
    """The tokens of all contexts or documents as a column."""
    return _join(parts, TOKEN)


def unpack_parts(tokens: bytes, lengths: bytes, field: str) -> list[Ids]:
    """The tokens of each context or document, not copied. Raises InvalidArgument if the columns are malformed."""
    sizes = unpack(lengths, SIZE, "lengths").tolist()
    every = unpack(tokens, TOKEN, field)
    _require_sum(field, len(every), "lengths", sizes)
    return [every[begin:end] for begin, end in _ranges(sizes)]


def pack_sizes(sizes: Iterable[int]) -> bytes:
    """Sizes or limits as a column."""
    return np.fromiter(sizes, SIZE).tobytes()


def unpack_max_nodes(data: bytes) -> int | list[int]:
    """The field ``max_nodes`` of a request: one number for all queries, or a list. Raises InvalidArgument if it is malformed."""
    sizes: list[int] = unpack(data, SIZE, "max_nodes").tolist() or [DEFAULT_MAX_NODES]
    return sizes if len(sizes) > 1 else sizes[0]


def pack_counts(counts: Iterable[int]) -> bytes:
    """Counts as a column."""
    return np.fromiter(counts, COUNT).tobytes()


def pack_trees(trees: Sequence[DraftTree]) -> draft_pb2.DraftReply:
    counts = [np.zeros(len(tree), COUNT) if tree.counts is None else tree.counts for tree in trees]
    return draft_pb2.DraftReply(
        tokens=_join([tree.tokens for tree in trees], TOKEN),
        parents=_join([tree.parents for tree in trees], TOKEN),
        scores=_join([tree.scores for tree in trees], SCORE),
        counts=_join(counts, COUNT),
        sizes=pack_sizes(map(len, trees)),
        match_lengths=pack_sizes(tree.match_length for tree in trees),
        match_counts=pack_counts(tree.match_count for tree in trees),
    )


def unpack_trees(
    reply: draft_pb2.DraftReply, max_nodes: Sequence[int], max_match: int, vocab_size: int
) -> list[DraftTree]:
    """The trees of a reply, one per entry of ``max_nodes``. Raises InvalidArgument if one is malformed or too large."""
    sizes = unpack(reply.sizes, SIZE, "sizes").tolist()
    matches = unpack_matches(reply, len(max_nodes), max_match)
    if len(sizes) != len(max_nodes):
        raise InvalidArgument(f"sizes: {len(sizes)} trees for {len(max_nodes)} queries")
    for index, (size, limit) in enumerate(zip(sizes, max_nodes, strict=True)):
        if size > limit:
            raise InvalidArgument(f"trees[{index}] has {size} nodes; the query allows {limit}")
    tokens, parents = unpack(reply.tokens, TOKEN, "tokens"), unpack(reply.parents, TOKEN, "parents")
    scores, counts = unpack(reply.scores, SCORE, "scores"), unpack(reply.counts, COUNT, "counts")
    for field, values in (("tokens", tokens), ("parents", parents), ("scores", scores), ("counts", counts)):
        _require_sum(field, len(values), "sizes", sizes)
    if not np.all((scores >= 0) & (scores <= 1)):
        raise InvalidArgument("scores: a score is not in 0..1")
    sources = np.full(len(tokens), RETRIEVED, np.uint32)
    trees = []
    for (begin, end), (length, count) in zip(_ranges(sizes), matches, strict=True):
        nodes = slice(begin, end)
        trees.append(
            DraftTree(tokens[nodes], parents[nodes], scores[nodes], sources[nodes], counts[nodes], length, count)
        )
    if not _are_trees(tokens, parents, sizes, vocab_size):
        for tree in trees:
            tree.validate(vocab_size)  # raises an error that names the bad node
    return trees


def pack_paths(trees: Sequence[Paths]) -> dict[str, Any]:
    """The fields ``tokens``, ``parents`` and ``sizes`` of a request to count continuations."""
    return {
        "tokens": _join([tree.tokens for tree in trees], TOKEN),
        "parents": _join([tree.parents for tree in trees], TOKEN),
        "sizes": pack_sizes(len(tree.tokens) for tree in trees),
    }


def unpack_paths(request: draft_pb2.CountRequest, queries: int) -> list[Paths]:
    """The trees of a request, one per query. Raises InvalidArgument if a column is malformed."""
    size = len(unpack(request.sizes, SIZE, "sizes"))
    if size != queries:
        raise InvalidArgument(f"sizes: {size} trees for {queries} contexts; give one for each context")
    tokens = unpack_parts(request.tokens, request.sizes, "tokens")
    parents = unpack_parts(request.parents, request.sizes, "parents")
    return list(map(Paths, tokens, parents))


def unpack_counts(reply: draft_pb2.CountReply, trees: Sequence[Paths]) -> list[npt.NDArray[np.uint64]]:
    """The counts of each tree's nodes. Raises InvalidArgument if their number is wrong."""
    sizes = [len(tree.tokens) for tree in trees]
    counts = unpack(reply.counts, COUNT, "counts")
    _require_sum("counts", len(counts), "sizes", sizes)
    return [counts[begin:end] for begin, end in _ranges(sizes)]


def pack_matches(matches: Sequence[Match]) -> draft_pb2.LookupReply:
    return draft_pb2.LookupReply(
        match_lengths=pack_sizes(match.length for match in matches),
        match_counts=pack_counts(match.count for match in matches),
    )


def unpack_matches(reply: draft_pb2.LookupReply | draft_pb2.DraftReply, queries: int, max_match: int) -> list[Match]:
    """The matches of a reply. Raises InvalidArgument if their number is not ``queries``, or one is impossible."""
    lengths = unpack(reply.match_lengths, SIZE, "match_lengths").tolist()
    counts = unpack(reply.match_counts, COUNT, "match_counts").tolist()
    if not len(lengths) == len(counts) == queries:
        raise InvalidArgument(f"matches: {len(lengths)} lengths and {len(counts)} counts for {queries} contexts")
    matches = list(map(Match, lengths, counts))
    for index, match in enumerate(matches):
        if match.length > max_match or (match.length == 0) != (match.count == 0):
            raise InvalidArgument(
                f"matches[{index}]: length {match.length} and count {match.count} are impossible; the limit of the length "
                f"is {max_match}"
            )
    return matches


def _join(parts: Sequence[npt.NDArray[Any]], kind: np.dtype[Any]) -> bytes:
    joined = np.concatenate(parts) if parts else np.empty(0, kind)
    return joined.astype(kind, copy=False).tobytes()


def _require_sum(field: str, size: int, sizes_field: str, sizes: Sequence[int]) -> None:
    if size != sum(sizes):
        raise InvalidArgument(Field(field), f" has {size} entries; {sizes_field} add up to {sum(sizes)}")


def _ranges(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The begin and end of each query's values in a column."""
    return pairwise(accumulate(sizes, initial=0))


def _are_trees(tokens: Ids, parents: Ids, sizes: Sequence[int], vocab_size: int) -> bool:
    """Whether ``DraftTree.validate`` would accept every tree of these columns."""
    if not len(tokens):
        return True
    starts = np.cumsum(sizes) - sizes
    indices = np.arange(len(tokens)) - np.repeat(starts, sizes)
    return bool(np.all((parents >= -1) & (parents < indices)) and tokens.min() >= 0 and tokens.max() < vocab_size)
