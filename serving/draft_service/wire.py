"""Draft trees and tokenizers as bytes on the wire; arrays are little-endian, without padding. Used by both ends."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import zstandard
from tokenizers import Tokenizer

from suffolk.datastore.draft_tree import DraftTree, Source
from suffolk.datastore.errors import Corruption, InvalidArgument, ResourceExhausted
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
    """The tokenizer.json as one zstd frame.

    Raises:
        ResourceExhausted: it is larger than a reply may be.
    """
    text = tokenizer.to_str().encode()
    frame = zstandard.ZstdCompressor(level=9).compress(text)
    if len(text) > limits.MAX_TOKENIZER_BYTES or len(frame) > limits.MAX_REPLY_BYTES - 1024:
        raise ResourceExhausted(
            f"the tokenizer has {len(text)} bytes, {len(frame)} compressed; the limits are {limits.MAX_TOKENIZER_BYTES} and "
            f"{limits.MAX_REPLY_BYTES - 1024}; load it from its own file and pass token ids"
        )
    return frame


def unpack_tokenizer(frame: bytes, expected: str) -> Tokenizer:
    """The inverse of ``pack_tokenizer``. ``expected``: the fingerprint in the datastore's facts.

    Raises:
        InvalidArgument: the frame is damaged, unpacks to too much, or holds another tokenizer.
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
    messages: Sequence[draft_pb2.DraftTree], budgets: Sequence[int], max_match: int, vocab_size: int
) -> list[DraftTree]:
    """The trees of a reply, checked: one per budget, within it, sound, all numbers within their bounds.

    The checks run over the whole batch at once, since a numpy call costs more than the work on one small tree.

    Raises:
        InvalidArgument: the reply is not what was asked for; the message says where.
    """
    if len(messages) != len(budgets):
        raise InvalidArgument(f"trees: there are {len(messages)}, {len(budgets)} were asked for")
    parts = [(message.tokens, message.parents, message.scores, message.counts) for message in messages]
    sizes = [len(part[0]) // TOKEN.itemsize for part in parts]
    for place, (part, size, budget) in enumerate(zip(parts, sizes, budgets, strict=True)):
        _check_lengths(place, part, size, budget)
    tokens = np.frombuffer(b"".join(part[0] for part in parts), TOKEN)
    parents = np.frombuffer(b"".join(part[1] for part in parts), TOKEN)
    scores = np.frombuffer(b"".join(part[2] for part in parts), SCORE)
    counts = np.frombuffer(b"".join(part[3] for part in parts), COUNT)
    sources = np.full(len(tokens), Source.DATASTORE, np.uint8)
    if not np.all((scores >= 0) & (scores <= 1)):
        raise InvalidArgument("trees: a score is not in 0..1")
    sound = _are_trees(tokens, parents, sizes, vocab_size)
    trees = []
    for place, (message, size, end) in enumerate(zip(messages, sizes, accumulate(sizes), strict=True)):
        if message.match_length > max_match:
            raise InvalidArgument(f"trees[{place}] has match length {message.match_length}; {max_match} is the most")
        own = slice(end - size, end)
        fields = tokens[own], parents[own], scores[own], sources[own], counts[own]
        tree = DraftTree(*fields, message.match_length, message.match_count)
        trees.append(tree if sound else tree.validate(vocab_size))  # validate names the node
    return trees


def _check_lengths(place: int, part: tuple[bytes, ...], size: int, budget: int) -> None:
    lengths = tuple(map(len, part))
    if lengths != (size * 4, size * 4, size * 4, size * 8):
        raise InvalidArgument(f"trees[{place}]: tokens, parents, scores, counts have {lengths} bytes for {size} nodes")
    if size > budget:
        raise InvalidArgument(f"trees[{place}] has {size} nodes; {budget} were asked for")


def _are_trees(
    tokens: npt.NDArray[np.int32], parents: npt.NDArray[np.int32], sizes: list[int], vocab_size: int
) -> bool:
    """Whether ``DraftTree.validate`` would pass every one of the trees that lie here end to end."""
    if not len(tokens):
        return True
    starts = np.cumsum(sizes) - sizes
    places = np.arange(len(tokens)) - np.repeat(starts, sizes)
    return bool(np.all((parents >= -1) & (parents < places)) and tokens.min() >= 0 and tokens.max() < vocab_size)
