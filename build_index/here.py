"""Makes the segments of a build on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from suffolk.build_index.encode_block import EncodeSetup
from suffolk.build_index.gather import Gatherer
from suffolk.build_index.memory import peak_memory
from suffolk.build_index.pool import BlockEncoders, open_encoders
from suffolk.build_index.reader import read_blocks
from suffolk.build_index.state import BuildState, SegmentMaker


@contextmanager
def segments_here(workers: int) -> Iterator[SegmentMaker]:
    """Reads in this process, tokenizes in ``workers`` processes, and sorts one segment after the other. See ``OpenMaker``."""
    with open_encoders(workers) as encoders:
        yield partial(_make_segments, encoders)


def _make_segments(encoders: BlockEncoders, gatherer: Gatherer, state: BuildState, setup: EncodeSetup) -> int:
    blocks = read_blocks(gatherer.inputs, gatherer.options, gatherer.target.token_width, state.next)
    encoded = encoders.encode(setup, blocks)
    state.finished.extend(gatherer.gather(encoded, len(state.finished), state.generation))
    return peak_memory() + sum(peak_memory(process) for process in encoders.processes())
