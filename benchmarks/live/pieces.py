"""Documents of equal length from a datastore, for the measurement of live indexes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffolk.benchmarks.datastore_options import LiveBenchOptions
from suffolk.datastore.datastore import open_datastore

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
        """Tokens of the documents to append."""
        return sum(map(len, self.appended))

    def parts(self, count: int, tokens: int) -> Iterator[list[Ids]]:
        """The first ``tokens`` tokens in up to ``count`` parts."""
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
