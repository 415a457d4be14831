"""Makes the segments of a build on this machine."""

from __future__ import annotations

from suffolk.build_index.encode_block import EncodeSetup
from suffolk.build_index.gather import Gatherer
from suffolk.build_index.memory import peak_memory
from suffolk.build_index.pool import open_encoder
from suffolk.build_index.reader import read_blocks
from suffolk.build_index.state import BuildState


def make_segments_here(gatherer: Gatherer, state: BuildState, setup: EncodeSetup) -> int:
    """Read in this process, tokenize in ``state.workers`` processes, and sort one segment after the other. See ``MakeSegments``."""
    blocks = read_blocks(gatherer.inputs, gatherer.options, gatherer.target.token_width, state.next)
    with open_encoder(setup, state.workers) as encoder:
        encoded = encoder.encode(blocks)
        state.finished.extend(gatherer.gather(encoded, len(state.finished), state.generation))
        return peak_memory() + sum(peak_memory(process) for process in encoder.processes())
