"""Gathers encoded blocks into segments, sorts each segment, and records it in the journal and the state of the build."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from suffolk.build_index.block import START, Block, Position, Texts
from suffolk.build_index.encode_block import EncodedBlock, EncodeSetup
from suffolk.build_index.inputs import Inputs
from suffolk.build_index.journal import FinishedSegment, reached, record_segment
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.progress import WorkProgress, rate
from suffolk.build_index.proof import Proof
from suffolk.build_index.report import megabytes
from suffolk.build_index.skipped import BuildCounts, Skipped, SkippedLog
from suffolk.build_index.target import BuildTarget
from suffolk.build_index.token_file import TokenFile
from suffolk.build_index.workspace import Workspace
from suffolk.datastore.documents import DocumentTableWriter
from suffolk.datastore.failpoints import failpoint
from suffolk.datastore.segment import SegmentEntry, token_dtype, write_segment

Encoded = Iterator[tuple[Block, EncodedBlock]]


@dataclass(slots=True)
class Gatherer:
    """Collects encoded blocks into segments.

    Attributes:
        run: totals of this run. Earlier runs of the same build are not included.
        read_seconds, sort_seconds: wall time of reading and of sorting in this run.
        first_left_out: the first record of this run that yields no document, with the reason.
        skipped: writes these records to a file.
    """

    workspace: Workspace
    options: BuildOptions
    target: BuildTarget
    inputs: Inputs
    progress: WorkProgress
    skipped: SkippedLog
    run: BuildCounts = field(default_factory=BuildCounts)
    read_seconds: float = 0.0
    sort_seconds: float = 0.0
    first_left_out: str = ""
    _began: float = field(default_factory=time.monotonic)

    def gather(self, encoded: Encoded, first: int, generation: int) -> Iterator[FinishedSegment]:
        """Yield segments that are finished and recorded in the journal, numbered from ``first`` on.

        Raises:
            SuffolkError: a block cannot be read or encoded, or the disk is full.
        """
        number = first
        while (segment := self._gather_one(encoded, self.workspace.segment_name(generation, number))) is not None:
            yield segment
            number += 1

    def count(self, counts: BuildCounts, left_out: Sequence[Skipped], bytes_read: int) -> None:
        """Add a block to the totals, and show them.

        Args:
            left_out: records that yield no document. The first one of this run is shown; the report counts all.
            bytes_read: bytes of the inputs read up to here.
        """
        if left_out and not self.first_left_out:
            self.first_left_out = str(left_out[0])
            self.progress.note(f"left out {self.first_left_out}; the summary counts such records")
        self.skipped.add(left_out)
        self.run.add(counts)
        self.progress.advance("reading", bytes_read / max(1, self.inputs.size), self._rates())

    def finish(self, entry: SegmentEntry, place: Position, counts: BuildCounts, skipped_bytes: int) -> FinishedSegment:
        """Record a new segment in the journal. The segment is named by its content. ``skipped_bytes``: see ``FinishedSegment``."""
        failpoint("segment.written")
        segment = FinishedSegment(entry, place, reached(self.inputs, place), counts, skipped_bytes)
        record_segment(self.workspace.journal, segment)
        return segment

    def _gather_one(self, encoded: Encoded, name: str) -> FinishedSegment | None:
        """Make the next segment from whole blocks until it has enough tokens. None if no token is left."""
        begin = time.monotonic()
        counts, table, block = BuildCounts(), DocumentTableWriter(), None
        with TokenFile(self.workspace.tokens, token_dtype(self.target.vocab_size)) as file:
            for block, tokens in encoded:
                file.append(tokens.tokens)
                table.extend(tokens.origins)
                counts.add(tokens.counts)
                self.count(tokens.counts, tokens.left_out, block.bytes_read)
                for damaged in block.payload.left_out if isinstance(block.payload, Texts) else ():
                    if str(damaged) != self.first_left_out:
                        self.progress.note(f"left out {damaged}")
                if file.tokens >= self.options.segment_tokens:
                    break
            self.read_seconds += time.monotonic() - begin
            if block is None or file.tokens == 0:
                return None
            return self._write(name, file, counts, table.finish(), block)

    def _write(self, name: str, file: TokenFile, counts: BuildCounts, table: bytes, block: Block) -> FinishedSegment:
        begin = time.monotonic()
        failpoint("segment.gathered")
        work, facts = f"sorting segment {name}", f"{file.tokens:,} tokens"
        self.progress.note(f"{work}: {facts}")
        entry = write_segment(
            self.workspace.new_segment(name),
            file.mapped(),
            vocab_size=self.target.vocab_size,
            order_depth=self.target.order_depth,
            fingerprint=self.target.fingerprint,
            documents=table,
            threads=self.options.workers(),
            progress=lambda share: self.progress.advance(
                work, share, f"{facts}, {rate(share * file.tokens, time.monotonic() - begin, 'tokens')}"
            ),
        )
        self.sort_seconds += time.monotonic() - begin
        return self.finish(self.workspace.name_by_content(entry), block.next, counts, self.skipped.size)

    def _rates(self) -> str:
        seconds, run = max(time.monotonic() - self._began, 1e-9), self.run
        speed = f"{run.text_bytes / 1e6 / seconds:.1f} MB/s, {run.tokens / seconds:,.0f} tokens/s"
        return f"{megabytes(run.text_bytes)}, {speed}"


@dataclass(slots=True)
class BuildState:
    """The state of a build.

    Attributes:
        generation: the generation that the build publishes.
        proof: how text is tokenized.
        workers: tokenizing processes.
        finished: the segments in the journal, in order.
        resumed: number of segments of an interrupted run.
    """

    generation: int
    proof: Proof
    workers: int
    finished: list[FinishedSegment]
    resumed: int

    @property
    def next(self) -> Position:
        """Where reading continues after the finished segments."""
        return self.finished[-1].next if self.finished else START


SegmentMaker = Callable[[Gatherer, BuildState, EncodeSetup], int]
"""Makes the missing segments of a build, and adds them to the journal and to the ``finished`` segments of the state.

Returns the peak memory of this process and its workers, in bytes. Raises SuffolkError: a block cannot be read or encoded, or the
disk is full.
"""

OpenMaker = Callable[[int], AbstractContextManager[SegmentMaker]]
"""Opens a segment maker. Called at the start of a build, with the number of tokenizing processes.

So processes on this machine start while the builder reads the tokenizer and compares samples.
"""
