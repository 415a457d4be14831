"""Token arrays and draft trees as bytes on the wire: little-endian, without padding. Used by both ends."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from datastore.draft_tree import DraftTree, Source
from datastore.errors import InvalidArgument
from datastore.retriever import Tokens
from serving.proto import draft_pb2

TOKEN = np.dtype("<i4")
SCORE = np.dtype("<f4")
COUNT = np.dtype("<u8")


def to_tokens(ids: Tokens, field: str) -> npt.NDArray[np.int32]:
    """``ids`` as int32[n].

    Raises:
        InvalidArgument: not a flat run of whole numbers that fit 32 bits.
    """
    if isinstance(ids, np.ndarray) and ids.dtype == np.int32 and ids.ndim == 1:
        return ids.astype(np.int32, copy=False)
    try:
        array = np.asarray(ids)
    except (ValueError, OverflowError) as error:
        raise InvalidArgument(f"{field} is not a flat list of token ids: {error}") from None
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InvalidArgument(
            f"{field} is a {array.ndim}-dimensional array of {array.dtype}; give a flat list of integers"
        )
    if array.size and not -(1 << 31) <= int(array.min()) <= int(array.max()) < 1 << 31:
        raise InvalidArgument(
            f"{field} has a token id beyond 32 bits; token ids start at 0 and end at the vocabulary's size"
        )
    tokens: npt.NDArray[np.int32] = array.astype(np.int32)
    return tokens


def pack_tokens(tokens: npt.NDArray[np.int32]) -> bytes:
    return tokens.astype(TOKEN, copy=False).tobytes()


def unpack_tokens(data: bytes, field: str) -> npt.NDArray[np.int32]:
    """int32[n] over ``data``, not copied; InvalidArgument if its length is no multiple of 4."""
    if len(data) % TOKEN.itemsize:
        raise InvalidArgument(
            f"{field} has {len(data)} bytes; it must be a multiple of {TOKEN.itemsize}, int32 little-endian"
        )
    return np.frombuffer(data, TOKEN)


def pack_tree(tree: DraftTree) -> draft_pb2.DraftTree:
    counts = np.zeros(len(tree), COUNT) if tree.counts is None else tree.counts
    return draft_pb2.DraftTree(
        tokens=pack_tokens(tree.tokens),
        parents=pack_tokens(tree.parents),
        scores=tree.scores.astype(SCORE, copy=False).tobytes(),
        counts=counts.astype(COUNT, copy=False).tobytes(),
        match_length=tree.match_length,
        match_count=tree.match_count,
    )


def unpack_trees(
    messages: Sequence[draft_pb2.DraftTree], budgets: Sequence[int], max_match: int, vocab_size: int
) -> list[DraftTree]:
    """The trees of a reply, checked: one per budget, within it, sound, all numbers within their bounds.

    The checks run over the whole batch at once, since a numpy call costs more than the work on one small tree.

    Raises:
        InvalidArgument: the reply is not what was asked for; the message says where.
    """
    if len(messages) != len(budgets):
        raise InvalidArgument(f"trees: there are {len(messages)}, {len(budgets)} were asked for")
    tokens = _join([message.tokens for message in messages], TOKEN, "tokens")
    parents = _join([message.parents for message in messages], TOKEN, "parents")
    scores = _join([message.scores for message in messages], SCORE, "scores")
    counts = _join([message.counts for message in messages], COUNT, "counts")
    sizes = [len(message.tokens) // TOKEN.itemsize for message in messages]
    for place, (message, size, budget) in enumerate(zip(messages, sizes, budgets, strict=True)):
        _check_tree(place, message, size, budget, max_match)
    if not np.all((scores >= 0) & (scores <= 1)):
        raise InvalidArgument("trees: a score is not in 0..1")
    ends = list(accumulate(sizes))
    starts = np.array(ends, TOKEN) - np.array(sizes, TOKEN)
    places = np.arange(len(tokens), dtype=TOKEN) - np.repeat(starts, np.array(sizes, TOKEN))
    sound = not len(tokens) or bool(
        np.all((parents >= -1) & (parents < places)) and tokens.min() >= 0 and int(tokens.max()) < vocab_size
    )
    sources = np.full(len(tokens), Source.DATASTORE, np.uint8)
    trees = []
    for message, end, size in zip(messages, ends, sizes, strict=True):
        part = slice(end - size, end)
        tree = DraftTree(
            tokens[part],
            parents[part],
            scores[part],
            sources[part],
            counts[part],
            message.match_length,
            message.match_count,
        )
        trees.append(tree if sound else tree.validate(vocab_size))
    return trees


def _join(parts: list[bytes], dtype: np.dtype[Any], field: str) -> npt.NDArray[Any]:
    data = b"".join(parts)
    if len(data) % dtype.itemsize:
        raise InvalidArgument(f"trees: {field} have {len(data)} bytes; it must be a multiple of {dtype.itemsize}")
    return np.frombuffer(data, dtype)


def _check_tree(place: int, message: draft_pb2.DraftTree, size: int, budget: int, max_match: int) -> None:
    lengths = (len(message.tokens), len(message.parents), len(message.scores), len(message.counts))
    if lengths != (size * 4, size * 4, size * 4, size * 8):
        raise InvalidArgument(
            f"trees[{place}]: tokens, parents, scores and counts have {lengths} bytes for {size} nodes"
        )
    if size > budget:
        raise InvalidArgument(f"trees[{place}] has {size} nodes, {budget} were asked for")
    if message.match_length > max_match:
        raise InvalidArgument(
            f"trees[{place}] has match length {message.match_length}, {max_match} was the most to look for"
        )
