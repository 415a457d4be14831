"""Encodes blocks in parallel processes and returns them in order. Memory is bounded."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

from suffolk.build_index.block import Block
from suffolk.build_index.encode_block import BlockEncoder, EncodedBlock, EncodeSetup
from suffolk.datastore.errors import Internal, SuffolkError, Unavailable

BLOCKS_PER_WORKER = 3
"""Blocks in flight per worker: one is being encoded, one is queued, and one waits for its result to be received."""


@contextmanager
def open_encoder(setup: EncodeSetup, workers: int) -> Iterator[InlineEncoder | WorkerPool]:
    """Context manager of a block encoder. If ``workers`` is above 1, it has that many processes, which end with the
    context."""
    if workers <= 1:
        yield InlineEncoder(setup)
        return
    pool = WorkerPool(setup, workers)
    try:
        yield pool
    finally:
        pool.close()


class InlineEncoder:
    """Encodes in this process: for small corpora and single cores."""

    def __init__(self, setup: EncodeSetup) -> None:
        self._encoder = BlockEncoder(setup)

    def encode(self, blocks: Iterator[Block]) -> Iterator[tuple[Block, EncodedBlock]]:
        """Each block with its tokens, in order."""
        for block in blocks:
            yield block, self._encoder.encode(block.payload)

    def processes(self) -> list[int]:
        """Empty: there are no other processes."""
        return []


@dataclass(frozen=True, slots=True)
class _Worker:
    process: subprocess.Popen[bytes]
    connection: Connection


class WorkerPool:
    """Encodes in separate processes, because the fast tokenizer holds the GIL. Not thread-safe."""

    def __init__(self, setup: EncodeSetup, workers: int) -> None:
        self._workers: list[_Worker] = []
        try:
            for _ in range(workers):
                self._workers.append(_start())
            for worker in self._workers:
                worker.connection.send(setup)
        except BaseException:
            self.close()
            raise

    def encode(self, blocks: Iterator[Block]) -> Iterator[tuple[Block, EncodedBlock]]:
        """Each block with its tokens, in order. Block i goes to worker i modulo their number.

        Raises:
            SuffolkError: encoding a block failed; raised when the block's turn comes.
            Unavailable: a worker died.
        """
        waiting: deque[tuple[_Worker, Block]] = deque()
        for number, block in enumerate(blocks):
            worker = self._workers[number % len(self._workers)]
            _send(worker, block)
            waiting.append((worker, block))
            if len(waiting) >= BLOCKS_PER_WORKER * len(self._workers):
                yield _receive(*waiting.popleft())
        while waiting:
            yield _receive(*waiting.popleft())

    def processes(self) -> list[int]:
        """The workers' process ids."""
        return [worker.process.pid for worker in self._workers]

    def close(self) -> None:
        """Kill all workers."""
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
            start_new_session=True,  # Ctrl-C reaches only the builder, which then ends its workers
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    return _Worker(process, Connection(ours.detach()))


def _send(worker: _Worker, block: Block) -> None:
    try:
        worker.connection.send(block.payload)
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
