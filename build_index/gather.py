"""The heart of a build: encoded blocks gathered into segments, sorted one after the other, each recorded when it is done."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from suffolk.build_index.block import Block, Position
from suffolk.build_index.counts import Counts
from suffolk.build_index.encode_block import EncodedBlock
from suffolk.build_index.inputs import Inputs
from suffolk.build_index.journal import FinishedSegment, reached, record_segment
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.progress import BuildProgress
from suffolk.build_index.target import Target
from suffolk.build_index.token_file import TokenFile
from suffolk.build_index.workspace import Workspace
from suffolk.datastore.documents import DocumentTableWriter
from suffolk.datastore.failpoints import failpoint
from suffolk.datastore.segment import token_dtype, write_segment

Encoded = Iterator[tuple[Block, EncodedBlock]]


@dataclass(slots=True)
class Gatherer:
    """Makes segments out of encoded blocks.

    ``text_bytes``, ``tokens``, ``read_seconds`` and ``sort_seconds`` count what this run did.
    """

    workspace: Workspace
    options: BuildOptions
    target: Target
    inputs: Inputs
    progress: BuildProgress
    text_bytes: int = 0
    tokens: int = 0
    read_seconds: float = 0.0
    sort_seconds: float = 0.0

    def gather(self, encoded: Encoded, first: int, generation: int) -> Iterator[FinishedSegment]:
        """One finished, recorded segment after the other; the first gets the number ``first``.

        Raises:
            SuffolkError: a block could not be read or encoded, or the disk is full.
        """
        number = first
        while (segment := self._gather_one(encoded, self.workspace.segment_name(generation, number))) is not None:
            record_segment(self.workspace.journal, segment)
            yield segment
            number += 1

    def _gather_one(self, encoded: Encoded, name: str) -> FinishedSegment | None:
        """The next segment: whole blocks until it has enough tokens. None if no token is left."""
        begin = time.monotonic()
        counts, table, block = Counts(), DocumentTableWriter(), None
        with TokenFile(self.workspace.tokens, token_dtype(self.target.vocab_size)) as file:
            for block, tokens in encoded:
                file.append(tokens.tokens)
                table.extend(zip(tokens.sources, tokens.metadata, strict=True))
                counts.add_block(tokens)
                self.text_bytes += tokens.text_bytes
                self.tokens += len(tokens.tokens) - len(tokens.sources)
                self.progress.read(block.bytes_read / max(1, self.inputs.size), self.text_bytes, self.tokens)
                if file.tokens >= self.options.segment_tokens:
                    break
            self.read_seconds += time.monotonic() - begin
            if block is None or file.tokens == 0:
                return None
            return self._write(name, file, counts, table.finish(), block)

    def _write(self, name: str, file: TokenFile, counts: Counts, table: bytes, block: Block) -> FinishedSegment:
        begin = time.monotonic()
        failpoint("segment.gathered")
        self.progress.sort(name, file.tokens, 0.0)
        entry = write_segment(
            self.workspace.new_segment(name),
            file.mapped(),
            vocab_size=self.target.vocab_size,
            order_depth=self.target.order_depth,
            fingerprint=self.target.fingerprint,
            documents=table,
            threads=self.options.workers(),
            progress=lambda share: self.progress.sort(name, file.tokens, share),
        )
        failpoint("segment.written")
        self.progress.sort(name, file.tokens, 1.0)
        self.sort_seconds += time.monotonic() - begin
        place = Position(*block.next)
        return FinishedSegment(entry, place, reached(self.inputs, place), counts, block.skipped)
