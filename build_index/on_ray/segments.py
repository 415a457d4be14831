"""Makes the segments of a build on a Ray cluster. This process is the coordinator. It handles no text."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray

from suffolk.build_index.encode_block import EncodeSetup
from suffolk.build_index.gather import BuildState, Gatherer
from suffolk.build_index.journal import totals
from suffolk.build_index.on_ray.blocks import BlockSource, EncodedReference
from suffolk.build_index.on_ray.cluster import Cluster, find_cluster, working_nodes
from suffolk.build_index.on_ray.connection import Lost, connected, ray_errors
from suffolk.build_index.on_ray.tasks import sort_segment
from suffolk.build_index.on_ray.units import Place
from suffolk.build_index.plan import STORE_BYTES_PER_TOKEN, WORKER_BYTES, segment_bytes
from suffolk.build_index.report import count
from suffolk.build_index.skipped import BuildCounts
from suffolk.build_index.workspace import disk_errors
from suffolk.datastore import _native
from suffolk.datastore.errors import Field, Unavailable
from suffolk.datastore.host_memory import process_memory
from suffolk.datastore.segment import token_dtype

SORT_CORES = 4
"""The most cores of a sorting task."""
ATTEMPTS = 5
"""A build fails after this many losses of nodes or processes without a new segment."""
WAIT_SECONDS = 10.0


def make_segments(address: str, url: str | None, gatherer: Gatherer, state: BuildState, setup: EncodeSetup) -> int:
    """Make the missing segments on the cluster at ``address``. See ``SegmentMaker``, ``on_ray`` and ``connected``.

    After the loss of a node or process, all segments that this process has not received are made again.
    Returns the peak memory of this process plus that of the largest task, in bytes.

    Raises:
        Unavailable: nodes are lost again and again. Other errors are those of ``connected``, ``find_cluster`` and the tasks.
    """
    losses = 0
    while True:
        before = len(state.finished)
        try:
            with connected(address, gatherer.options.threads):
                return _make(url, gatherer, state, setup)
        except Lost as error:
            losses = 1 if len(state.finished) > before else losses + 1
            if losses == ATTEMPTS:
                raise Unavailable(
                    Field("ray"),
                    f": {address}: {ATTEMPTS} losses without a further segment, the last: {error}; check the nodes, and "
                    "run the command again to resume",
                ) from error
            gatherer.progress.note(f"lost: {error}; going on after {count(len(state.finished), 'segment')}")


def _make(url: str | None, gatherer: Gatherer, state: BuildState, setup: EncodeSetup) -> int:
    width = token_dtype(gatherer.target.vocab_size).itemsize
    tokens = min(gatherer.options.segment_tokens, int(gatherer.inputs.size * max(1.0, state.proof.growth)))
    cluster = find_cluster(task_memory(tokens, width), int(tokens * (STORE_BYTES_PER_TOKEN[width] + width)))
    state.workers = cluster.cores
    work = _Work(url, gatherer, state, setup, cluster)
    with ray_errors():
        work.run()
    return process_memory("VmHWM") + work.task_memory


def task_memory(tokens: int, width: int) -> int:
    """Bytes of memory of a task that sorts ``tokens`` of ``width`` bytes. Tokenizing tasks take WORKER_BYTES."""
    return int(segment_bytes(tokens, width) + WORKER_BYTES)


@dataclass(slots=True)
class _Gathering:
    """A segment while blocks are added to it."""

    blocks: list[Any] = field(default_factory=list)
    counts: BuildCounts = field(default_factory=BuildCounts)
    length: int = 0
    last: EncodedReference | None = None

    def add(self, block: EncodedReference) -> None:
        self.blocks.append(block.block)
        self.counts.add(block.facts.counts)
        self.length += block.facts.length
        self.last = block


@dataclass(frozen=True, slots=True)
class _Sorting:
    """A segment that a task sorts."""

    parts: Any
    place: Place
    counts: BuildCounts
    skipped_bytes: int


@dataclass(slots=True)
class _Work:
    """The work from the last finished segment on. ``task_memory``: peak memory of the largest task."""

    url: str | None
    gatherer: Gatherer
    state: BuildState
    setup: EncodeSetup
    cluster: Cluster
    task_memory: int = 0
    _sorting: deque[_Sorting] = field(default_factory=deque)

    def run(self) -> None:
        """Make all missing segments."""
        gatherer, state, begin = self.gatherer, self.state, time.monotonic()
        gatherer.run = totals(state.finished[state.resumed :])
        gatherer.skipped.cut(state.finished[-1].skipped_bytes if state.finished else None)
        source = BlockSource(gatherer, self.setup, self.cluster, state.next, self._wait)
        most = max(1, self.cluster.cores // self._sort_cores())
        for gathering in self._gather(source.blocks()):
            self._sorting.append(self._sort(gathering, len(state.finished) + len(self._sorting)))
            while len(self._sorting) > most or (self._sorting and ray.wait([self._sorting[0].parts], timeout=0)[0]):
                self._receive()
        gatherer.read_seconds += time.monotonic() - begin
        begin, left = time.monotonic(), len(self._sorting)
        while self._sorting:
            gatherer.progress.advance("sorting", 1 - len(self._sorting) / left, f"{len(self._sorting)} segments left")
            self._receive()
        gatherer.sort_seconds += time.monotonic() - begin

    def _gather(self, blocks: Iterator[EncodedReference]) -> Iterator[_Gathering]:
        """Yield segments of whole blocks, as ``Gatherer`` makes them."""
        gathering = _Gathering()
        for block in blocks:
            gathering.add(block)
            self.task_memory = max(self.task_memory, block.facts.memory)
            self.gatherer.count(block.facts.counts, block.facts.left_out, block.place.bytes_read)
            if gathering.length >= self.gatherer.options.segment_tokens:
                yield gathering
                gathering = _Gathering()
        if gathering.length:
            yield gathering

    def _sort(self, gathering: _Gathering, number: int) -> _Sorting:
        assert gathering.last is not None
        target = self.gatherer.target
        name = self.gatherer.workspace.segment_name(self.state.generation, number)
        self.gatherer.progress.note(f"sorting segment {name}: {gathering.length:,} tokens")
        cores = self._sort_cores()
        task = ray.remote(sort_segment).options(
            num_cpus=cores,
            memory=task_memory(gathering.length, token_dtype(target.vocab_size).itemsize),
            num_returns="streaming",
            max_retries=0,
        )
        settings = {
            "vocab_size": target.vocab_size,
            "order_depth": target.order_depth,
            "fingerprint": target.fingerprint,
            "threads": cores,
        }
        parts = task.remote(name, gathering.blocks, settings, self.url)
        return _Sorting(parts, gathering.last.place, gathering.counts, self.gatherer.skipped.size)

    def _sort_cores(self) -> int:
        return min(self.gatherer.options.threads or SORT_CORES, SORT_CORES, self.cluster.node_cores)

    def _receive(self) -> None:
        """Add the oldest segment to the journal. Without ``url``, first write and verify the file that its task returns."""
        sorting = self._sorting[0]
        self._wait(sorting.parts)
        entry, memory = ray.get(next(sorting.parts))
        self.task_memory = max(self.task_memory, memory)
        if self.url is None:
            self._write(self.gatherer.workspace.new_segment(entry.name), sorting.parts)
        self.state.finished.append(
            self.gatherer.finish(entry, sorting.place.next, sorting.counts, sorting.skipped_bytes)
        )
        self._sorting.popleft()

    def _write(self, path: Path, parts: Iterable[Any]) -> None:
        """Write a file from ``parts``, and verify it."""
        with disk_errors(path), open(path, "wb") as file:
            for part in parts:
                self._wait(part)
                file.write(ray.get(part))
            file.flush()
            os.fsync(file.fileno())
        _native.Segment(os.fspath(path)).verify("checksums")

    def _wait(self, reference: Any) -> None:
        """Wait for an object. Raises Unavailable if no node is left that could compute it."""
        while not ray.wait([reference], timeout=WAIT_SECONDS)[0]:
            if not working_nodes():
                raise Unavailable(
                    Field("ray"), ": no node with a core is left; start one, and run the command again to resume"
                )
