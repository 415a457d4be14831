"""The two indexes that are compared, and their documents: Suffolk's live index and the suffix tree of arctic-inference."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from suffolk.benchmarks.datastore_options import LiveBenchOptions
from suffolk.benchmarks.report import quantiles_us
from suffolk.datastore import _native
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.draft_tree import RETRIEVED

Ids = npt.NDArray[np.uint32]
HELD_OUT = 10
"""Every tenth document is not appended; contexts are cut from it."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """Documents to append, in random order, and contexts from other documents, which are not appended."""

    vocab_size: int
    order_depth: int
    appended: list[Ids]
    contexts: list[list[int]]

    @property
    def tokens(self) -> int:
        """Number of tokens in the documents to append."""
        return sum(map(len, self.appended))

    def parts(self, count: int, tokens: int) -> Iterator[list[Ids]]:
        """Yield the first ``tokens`` tokens, up to the end of a document, in up to ``count`` parts."""
        ends = np.cumsum([len(piece) for piece in self.appended])
        last = int(np.searchsorted(ends, tokens)) + 1
        for part in np.array_split(np.arange(min(last, len(ends))), count):
            if len(part):
                yield [self.appended[number] for number in part]


def read_pieces(options: LiveBenchOptions) -> Pieces:
    """Cut the documents of a datastore into pieces of ``document_tokens``.

    Raises:
        NotFound, Corruption: the datastore is missing or damaged.
    """
    needed = options.tokens * HELD_OUT // (HELD_OUT - 1)
    pieces: list[Ids] = []
    with open_datastore(options.store) as store:
        for document in store.documents():
            tokens = np.asarray(document.tokens, np.uint32)
            cuts = range(0, len(tokens), options.document_tokens)
            pieces += [tokens[begin : begin + options.document_tokens].copy() for begin in cuts]
            needed -= len(tokens)
            if needed <= 0:
                break
        manifest = store.manifest
    random = np.random.default_rng(options.seed)
    random.shuffle(pieces)
    held = [piece for piece in pieces[::HELD_OUT] if len(piece) > options.max_match] or pieces
    contexts = []
    for number in range(options.queries):
        piece = held[number % len(held)]
        end = int(random.integers(min(options.max_match, len(piece)), len(piece) + 1))
        contexts.append(piece[max(0, end - options.max_match) : end].tolist())
    appended = [piece for number, piece in enumerate(pieces) if number % HELD_OUT] or pieces
    return Pieces(manifest.vocab_size, manifest.order_depth, appended, contexts)


SUFFOLK, ARCTIC = "suffolk", "arctic-inference"


class LiveIndex:
    """Suffolk's live index, in memory alone."""

    name = SUFFOLK

    def __init__(self, pieces: Pieces, options: LiveBenchOptions) -> None:
        self.native = _native.LiveIndex(pieces.vocab_size, pieces.order_depth, 2)
        self._bounds = (options.max_match, options.min_match, options.max_depth, [options.max_nodes])
        self._columns = (np.zeros(1, np.uint64), [b""], np.zeros(1, np.int64))

    def append(self, piece: Ids) -> None:
        """Add one document."""
        self.native.append(piece, np.array([len(piece)], np.uint64), *self._columns)

    def draft(self, context: Sequence[int]) -> int:
        """Draft a tree; return its nodes."""
        return len(self.native.draft([context], *self._bounds, RETRIEVED)[0])

    def bytes(self) -> int:
        """Return the index's memory in bytes, as the index itself counts it."""
        return self.native.stats()["bytes"]

    def settle(self) -> None:
        """Wait for work in the background."""
        self.native.settle()

    def close(self) -> None:
        """Free the memory."""
        self.native.close()


class ArcticTree:
    """The suffix tree of arctic-inference, which vLLM's method ``suffix`` uses. Its depth is vLLM's default of 24.

    Its methods are those of ``LiveIndex``.

    Raises:
        ImportError: the package is not installed.
    """

    name = ARCTIC
    DEPTH = 24

    def __init__(self, options: LiveBenchOptions) -> None:
        from arctic_inference.suffix_decoding._C import SuffixTree  # type: ignore[import-not-found, import-untyped, unused-ignore]

        self._tree: Any = SuffixTree(self.DEPTH)
        self._bounds = (options.max_nodes, 0.0, float(options.max_nodes), 0.0, True)
        self._documents = 0

    def append(self, piece: Ids) -> None:
        self._tree.extend_ndarray(self._documents, piece.astype(np.int32))
        self._documents += 1

    def draft(self, context: Sequence[int]) -> int:
        return len(self._tree.speculate(context, *self._bounds).token_ids)

    def bytes(self) -> int:
        return int(self._tree.estimate_memory())

    def settle(self) -> None:
        """Nothing works in the background."""

    def close(self) -> None:
        self._tree = None


GrowingIndex: TypeAlias = LiveIndex | ArcticTree

SEGMENT_COUNTS = (8, 16)


def drafts_by_segments(pieces: Pieces, options: LiveBenchOptions) -> dict[str, Any]:
    """Measure the latency of drafts from Python over the same documents in 1, 8 and 16 segments.

    ``falling``: each segment takes half of the remaining documents, as in a live index. ``equal``: the segments have equal size,
    as in files.
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
    segments = [_one_segment(part, pieces) for part in parts if part]  # few documents do not fill all
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
