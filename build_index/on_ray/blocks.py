"""Reads and tokenizes blocks on a cluster. Blocks arrive in the order of the inputs. Few blocks are in flight."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from suffolk.build_index.block import Position
from suffolk.build_index.encode_block import EncodeSetup
from suffolk.build_index.gather import Gatherer
from suffolk.build_index.on_ray.cluster import Cluster
from suffolk.build_index.on_ray.tasks import Encoded, encode_block, read_unit
from suffolk.build_index.on_ray.units import Place, Unit, cut_units
from suffolk.build_index.plan import WORKER_BYTES
from suffolk.datastore.file_systems import is_storage_url

READERS = 8
"""The most units that are read at the same time."""
BLOCKS_AHEAD = 8
"""The most blocks that a reader reads ahead before it waits."""
BLOCKS_PER_CORE = 3
"""Blocks in flight for each core."""


@dataclass(frozen=True, slots=True)
class EncodedReference:
    """An encoded block on the cluster.

    Attributes:
        block: reference to the ``EncodedBlock``.
        facts: its length, counts and memory.
        place: where the block ends in the inputs.
    """

    block: Any
    facts: Encoded
    place: Place


@dataclass(slots=True)
class BlockSource:
    """Encodes the blocks of a build's inputs from ``start`` on. For one thread. ``wait`` waits until an object exists."""

    gatherer: Gatherer
    setup: EncodeSetup
    cluster: Cluster
    start: Position
    wait: Callable[[Any], None]

    def blocks(self) -> Iterator[EncodedReference]:
        """Yield the encoded blocks in order. In flight are ``BLOCKS_PER_CORE`` blocks for each core, and what readers read ahead.

        Raises:
            Lost, SuffolkError: as ``ray_errors``.
        """
        encode: Any = ray.remote(encode_block).options(num_cpus=1, memory=WORKER_BYTES, num_returns=2, max_retries=0)
        build, setup = secrets.token_hex(8), [ray.put(self.setup)]
        waiting: deque[tuple[Any, Any, Place]] = deque()
        for payload, place in self._read():
            block, facts = encode.remote(build, setup, payload)
            waiting.append((block, facts, place))
            del payload, block  # the tasks keep these objects alive
            if len(waiting) >= BLOCKS_PER_CORE * self.cluster.cores:
                yield self._take(*waiting.popleft())
        while waiting:
            yield self._take(*waiting.popleft())

    def _take(self, block: Any, facts: Any, place: Place) -> EncodedReference:
        self.wait(facts)
        return EncodedReference(block, ray.get(facts), place)

    def _read(self) -> Iterator[tuple[Any, Place]]:
        """Yield references to the contents of blocks, and the blocks' places in the inputs."""
        units = cut_units(self.gatherer.inputs, self.start)
        running = deque((unit, self._begin(unit)) for unit in islice(units, min(READERS, self.cluster.cores + 1)))
        while running:
            unit, reader = running.popleft()
            while True:
                self.wait(reader)
                place: Place = ray.get(next(reader))
                if not place.has_block:
                    break
                self.wait(reader)
                yield next(reader), unit.in_inputs(place)
            running.extend((each, self._begin(each)) for each in islice(units, 1))

    def _begin(self, unit: Unit) -> Any:
        """Start to read a unit. Files on this machine's disk are read on this machine, and other files on any node."""
        local = any(not is_storage_url(file.path) for file in unit.files)
        node: Any = NodeAffinitySchedulingStrategy(self.cluster.this_node, soft=False) if local else "SPREAD"
        reader = ray.remote(read_unit).options(
            num_cpus=0,  # a waiting reader must not hold a core that the encoding tasks need
            num_returns="streaming",
            _generator_backpressure_num_objects=2 * BLOCKS_AHEAD,
            max_retries=0,
            scheduling_strategy=node,
        )
        return reader.remote(unit.files, self.gatherer.options, self.gatherer.target.token_width, unit.start)
