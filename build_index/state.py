"""The state of one build between its segments."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from suffolk.build_index.block import START, Position
from suffolk.build_index.encode_block import EncodeSetup
from suffolk.build_index.gather import Gatherer
from suffolk.build_index.journal import FinishedSegment
from suffolk.build_index.proof import Proof


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


class SegmentMaker(Protocol):
    """Makes the missing segments of a build, and adds them to the journal and to ``state.finished``."""

    def __call__(self, gatherer: Gatherer, state: BuildState, setup: EncodeSetup) -> int:
        """Returns the peak memory of this process and its workers, in bytes.

        Raises:
            SuffolkError: a block cannot be read or encoded, or the disk is full.
        """
        ...


OpenMaker = Callable[[int], AbstractContextManager[SegmentMaker]]
"""Called at the start of a build, with the number of tokenizing processes: those on this machine start while the builder reads
the tokenizer and compares samples."""
