"""Makes the segments of a build, on this machine or on Ray.

On this machine, parallel processes encode blocks, and blocks are returned in order. Memory is bounded.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection

from suffolk.build_index.block import Block, Payload
from suffolk.build_index.encode_block import BlockEncoder, EncodedBlock, EncodeSetup
from suffolk.build_index.gather import BuildState, Gatherer, OpenMaker, SegmentMaker
from suffolk.build_index.reader import read_blocks
from suffolk.datastore.errors import Internal, SuffolkError, Unavailable, Unsupported
from suffolk.datastore.host_memory import process_memory

BLOCKS_PER_WORKER = 3
"""Blocks in flight per worker: one is being encoded, one is queued, and one waits for its result to be received."""


class BlockEncoders:
    """Encodes blocks in this process. Used for small corpora and single cores."""

    def encode(self, setup: EncodeSetup, blocks: Iterator[Block]) -> Iterator[tuple[Block, EncodedBlock]]:
        """Yield each block with its tokens, in order. Called once.

        Raises:
            SuffolkError: encoding a block failed. It is raised when the block's turn comes.
            Unavailable: a process died.
        """
        encoder = BlockEncoder(setup)
        for block in blocks:
            yield block, encoder.encode(block.payload)

    def processes(self) -> list[int]:
        """The ids of the other processes."""
        return []

    def close(self) -> None:
        """End the other processes."""


@dataclass(frozen=True, slots=True)
class _Worker:
    process: subprocess.Popen[bytes]
    connection: Connection


class WorkerPool(BlockEncoders):
    """Encodes in separate processes, because the fast tokenizer holds the GIL. Not thread-safe."""

    def __init__(self, workers: int) -> None:
        self._workers: list[_Worker] = []
        try:
            for _ in range(workers):
                self._workers.append(_start())
        except BaseException:
            self.close()
            raise

    def encode(self, setup: EncodeSetup, blocks: Iterator[Block]) -> Iterator[tuple[Block, EncodedBlock]]:
        """See ``BlockEncoders``. Block i goes to worker i modulo the number of workers."""
        for worker in self._workers:
            _send(worker, setup)
        waiting: deque[tuple[_Worker, Block]] = deque()
        for number, block in enumerate(blocks):
            worker = self._workers[number % len(self._workers)]
            _send(worker, block.payload)
            waiting.append((worker, block))
            if len(waiting) >= BLOCKS_PER_WORKER * len(self._workers):
                yield _receive(*waiting.popleft())
        while waiting:
            yield _receive(*waiting.popleft())

    def processes(self) -> list[int]:
        return [worker.process.pid for worker in self._workers]

    def close(self) -> None:
        for worker in self._workers:
            worker.connection.close()
            worker.process.kill()
        for worker in self._workers:
            worker.process.wait()
        self._workers.clear()


def _start() -> _Worker:
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "suffolk.build_index.worker", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches only the builder. The builder then ends its workers
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    return _Worker(process, Connection(ours.detach()))


def _send(worker: _Worker, message: EncodeSetup | Payload) -> None:
    try:
        worker.connection.send(message)
    except OSError as error:
        raise _death(worker) from error


def _receive(worker: _Worker, block: Block) -> tuple[Block, EncodedBlock]:
    try:
        answer = worker.connection.recv()
    except (EOFError, OSError) as error:
        raise _death(worker) from error
    if isinstance(answer, SuffolkError):
        raise answer
    if not isinstance(answer, EncodedBlock):
        raise Internal(f"a tokenizing process answered {type(answer).__name__}; report this")
    return block, answer


def _death(worker: _Worker) -> Unavailable:
    code = worker.process.wait()
    return Unavailable(
        f"a tokenizing process ended with code {code} (-9: killed, often for memory); run the command again to resume, "
        "with fewer --threads if memory is short"
    )


@contextmanager
def segments_here(workers: int) -> Iterator[SegmentMaker]:
    """Reads in this process, tokenizes in ``workers`` processes, and sorts one segment after the other. See ``OpenMaker``.

    With one worker, this process tokenizes.
    """
    with closing(WorkerPool(workers) if workers > 1 else BlockEncoders()) as encoders:
        yield partial(_make_segments, encoders)


def _make_segments(encoders: BlockEncoders, gatherer: Gatherer, state: BuildState, setup: EncodeSetup) -> int:
    blocks = read_blocks(gatherer.inputs, gatherer.options, gatherer.target.token_width, state.next)
    encoded = encoders.encode(setup, blocks)
    state.finished.extend(gatherer.gather(encoded, len(state.finished), state.generation))
    return process_memory("VmHWM") + sum(process_memory("VmHWM", process) for process in encoders.processes())


def on_ray(address: str, url: str | None = None) -> OpenMaker:
    """Lets ``build`` work on a cluster.

    Args:
        address: HOST:PORT of the cluster, "auto" for the cluster of this machine, or "local" to start a cluster here.
        url: where the tasks send finished segments; None: the tasks return segments to this process.

    Raises:
        Unsupported: Ray is not installed.
    """
    if importlib.util.find_spec("ray") is None:
        raise Unsupported("Ray is not installed, and --ray needs it; pip install 'suffolk[ray]'")

    def make(gatherer: Gatherer, state: BuildState, setup: EncodeSetup) -> int:
        from suffolk.build_index.on_ray.segments import make_segments

        return make_segments(address, url, gatherer, state, setup)

    return lambda workers: nullcontext(make)
