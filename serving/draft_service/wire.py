"""Packs draft trees and tokenizers as bytes, and validates replies. Arrays are little-endian, without padding."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import zstandard
from tokenizers import Tokenizer

from suffolk.datastore.draft_tree import RETRIEVED, DraftTree
from suffolk.datastore.errors import Corruption, InvalidArgument, ResourceExhausted
from suffolk.datastore.retriever import Match
from suffolk.datastore.tokenizer import fingerprint, parse_tokenizer
from suffolk.serving.draft_service import limits
from suffolk.serving.proto import draft_pb2
from suffolk.serving.transport.tokens import TOKEN, pack_tokens

SCORE = np.dtype("<f4")
COUNT = np.dtype("<u8")


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


def pack_tokenizer(tokenizer: Tokenizer) -> bytes:
    """The tokenizer.json as one zstd frame. Raises ResourceExhausted if it is larger than a reply may be."""
    text = tokenizer.to_str().encode()
    frame = zstandard.ZstdCompressor(level=9).compress(text)
    if len(text) > limits.MAX_TOKENIZER_BYTES or len(frame) > limits.MAX_REPLY_BYTES - 1024:
        raise ResourceExhausted(
            f"the tokenizer has {len(text)} bytes, {len(frame)} compressed; the limits are {limits.MAX_TOKENIZER_BYTES} and "
            f"{limits.MAX_REPLY_BYTES - 1024}; load it from its own file and pass token ids"
        )
    return frame


def unpack_tokenizer(frame: bytes, expected: str) -> Tokenizer:
    """The inverse of ``pack_tokenizer``.

    Args:
        expected: fingerprint of the datastore's tokenizer.

    Raises:
        InvalidArgument: the frame is damaged, too large when decompressed, or holds another tokenizer.
    """
    try:
        if not 0 <= zstandard.frame_content_size(frame) <= limits.MAX_TOKENIZER_BYTES:
            raise InvalidArgument(f"tokenizer: its frame states no size up to {limits.MAX_TOKENIZER_BYTES} bytes")
        text = zstandard.ZstdDecompressor().decompress(frame, max_output_size=limits.MAX_TOKENIZER_BYTES)
        tokenizer = parse_tokenizer(text)
    except (zstandard.ZstdError, Corruption) as error:
        raise InvalidArgument(f"tokenizer: {error}") from None
    if (found := fingerprint(tokenizer)) != expected:
        raise InvalidArgument(f"tokenizer: its fingerprint is {found}, not {expected}, that of the datastore")
    return tokenizer


def unpack_trees(
    messages: Sequence[draft_pb2.DraftTree], max_nodes: Sequence[int], max_match: int, vocab_size: int
) -> list[DraftTree]:
    """The trees of a reply, one per entry of ``max_nodes``. Raises InvalidArgument if one is malformed or too large.

    All trees are checked together, because the overhead of a numpy call exceeds the work on one small tree.
    """
    if len(messages) != len(max_nodes):
        raise InvalidArgument(f"trees: {len(messages)} trees for {len(max_nodes)} queries")
    parts = [(message.tokens, message.parents, message.scores, message.counts) for message in messages]
    sizes = [len(part[0]) // TOKEN.itemsize for part in parts]
    for index, (part, size, limit) in enumerate(zip(parts, sizes, max_nodes, strict=True)):
        _check_lengths(index, part, size, limit)
    tokens = np.frombuffer(b"".join(part[0] for part in parts), TOKEN)
    parents = np.frombuffer(b"".join(part[1] for part in parts), TOKEN)
    scores = np.frombuffer(b"".join(part[2] for part in parts), SCORE)
    counts = np.frombuffer(b"".join(part[3] for part in parts), COUNT)
    sources = np.full(len(tokens), RETRIEVED, np.uint32)
    if not np.all((scores >= 0) & (scores <= 1)):
        raise InvalidArgument("trees: a score is not in 0..1")
    valid = _are_trees(tokens, parents, sizes, vocab_size)
    trees = []
    for index, (message, size, end) in enumerate(zip(messages, sizes, accumulate(sizes), strict=True)):
        if message.match_length > max_match:
            raise InvalidArgument(f"trees[{index}] has match length {message.match_length}; the limit is {max_match}")
        nodes = slice(end - size, end)
        fields = tokens[nodes], parents[nodes], scores[nodes], sources[nodes], counts[nodes]
        tree = DraftTree(*fields, message.match_length, message.match_count)
        trees.append(tree if valid else tree.validate(vocab_size))  # validate names the node
    return trees


def unpack_matches(messages: Sequence[draft_pb2.Match], size: int, max_match: int) -> list[Match]:
    """The matches of a reply. Raises InvalidArgument if their number is not ``size``, or a match is impossible."""
    if len(messages) != size:
        raise InvalidArgument(f"matches: {len(messages)} matches for {size} contexts")
    matches = [Match(message.length, message.count) for message in messages]
    for index, match in enumerate(matches):
        if match.length > max_match or (match.length == 0) != (match.count == 0):
            raise InvalidArgument(f"matches[{index}]: length {match.length} and count {match.count} are impossible")
    return matches


def _check_lengths(index: int, part: tuple[bytes, ...], size: int, limit: int) -> None:
    lengths = tuple(map(len, part))
    if lengths != (size * 4, size * 4, size * 4, size * 8):
        raise InvalidArgument(f"trees[{index}]: tokens, parents, scores, counts have {lengths} bytes for {size} nodes")
    if size > limit:
        raise InvalidArgument(f"trees[{index}] has {size} nodes; the query allows {limit}")


def _are_trees(
    tokens: npt.NDArray[np.int32], parents: npt.NDArray[np.int32], sizes: list[int], vocab_size: int
) -> bool:
    """Whether ``DraftTree.validate`` would accept every tree of these concatenated arrays."""
    if not len(tokens):
        return True
    starts = np.cumsum(sizes) - sizes
    indices = np.arange(len(tokens)) - np.repeat(starts, sizes)
    return bool(np.all((parents >= -1) & (parents < indices)) and tokens.min() >= 0 and tokens.max() < vocab_size)
