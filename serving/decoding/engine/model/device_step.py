"""The end of a step on the device: sampling, the walk along the drafts, and the compaction of the cache.

It follows a graph pass without waiting for the host. One small copy brings the accepted nodes and sampled tokens to the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from suffolk.serving.decoding.engine.model.graph_capture import GraphMemory, capture_graph
from suffolk.serving.decoding.engine.model.kv_cache import KVCache
from suffolk.serving.decoding.engine.model.row_attention import RowTables, kernels, launching, power_of_two
from suffolk.serving.decoding.engine.model.row_plan import ROW_FIELDS, Numbers

UNDECIDED = -1
"""A request's token if the device could not sample where its path ends. The host then samples its rows, which stay in place."""
ON_HOST = -2
"""The parent of all rows of a request that the host verifies. The request's token is then ``UNDECIDED``."""
SETTINGS = 6
"""Numbers of a row's sampling settings."""
KINDS = 3
"""Number of kinds of sampling (``row_sampling.py``). A graph of one kind also samples rows of lower kinds."""

SampleRows = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, int], torch.Tensor]
"""(logits [n, vocab], positions int64[n], settings int64[SETTINGS, n], the highest kind of these rows) -> tokens int64[n].

A token may be ``UNDECIDED``.
"""


@dataclass(frozen=True, slots=True)
class Drafts:
    """The rows that a device step verifies: the wanted rows of each request, in the order of the pass.

    Attributes:
        counts: int64[requests], the number of wanted rows of each request.
        parents: int64[rows], each row's parent among the rows of its request, -1 for the first row; or ``ON_HOST``.
        settings: int64[SETTINGS, rows], how rows are sampled, the kind first; all 0 for rows that the host samples.
    """

    counts: Numbers
    parents: Numbers
    settings: Numbers

    @property
    def kind(self) -> int:
        """The highest kind of the rows."""
        return int(self.settings[0].max(initial=0))


@dataclass(frozen=True, slots=True)
class Walks:
    """The results of a device step, for each request of its ``Drafts``.

    Attributes:
        begins: where the rows of each request begin.
        counts: how many nodes were accepted. Their rows follow the request's first row in the cache.
        tokens: the token after the accepted nodes, or ``UNDECIDED``.
        nodes: the accepted nodes of request r begin at ``begins[r] + 1``.
    """

    begins: list[int]
    counts: list[int]
    tokens: list[int]
    nodes: Numbers


class DeviceStep:
    """Ends steps whose passes read ``RowTables``. Not thread-safe. On CUDA, each size and kind of sampling is captured."""

    def __init__(self, tables: RowTables, cache: KVCache, sample: SampleRows, sizes: Sequence[int]) -> None:
        """``sizes``: numbers of wanted rows; a step is padded to the next larger size."""
        most, device = len(tables.wanted), tables.rows.device
        self._tables, self._cache, self._sample = tables, cache, sample
        self._sizes = sorted({min(size, most) for size in sizes})
        self._numbers = tables.extra_numbers.reshape(-1, most)
        extra = tables.extra.view(-1, most)
        self._parents, self._ends, self._settings = extra[0], extra[1], extra[2:]
        self._moves = torch.zeros((2, most), dtype=torch.int64, device=device)
        self._found = torch.zeros((3, most), dtype=torch.int64, device=device)
        cuda = device.type == "cuda"
        self._host = torch.zeros_like(self._found, device="cpu", pin_memory=cuda) if cuda else self._found
        self._copied = torch.cuda.Event() if cuda else None  # type: ignore[no-untyped-call]  # torch's own
        self._captured: dict[tuple[int, int], torch.cuda.CUDAGraph] = {}

    @staticmethod
    def extra(wanted: int) -> int:
        """How many numbers ``RowTables`` needs for a step of ``wanted`` rows."""
        return (2 + SETTINGS) * wanted

    def clear(self) -> None:
        """Set rows of padding only, before the tables of the next pass are loaded."""
        self._tables.wait()
        self._numbers[0], self._numbers[1], self._numbers[2:] = -1, np.arange(1, self._numbers.shape[1] + 1), 0

    def load(self, drafts: Drafts) -> None:
        """Set the drafts of the next pass, before its tables are loaded."""
        self._tables.wait()
        numbers, size = self._numbers, self._size(drafts)
        used, requests = len(drafts.parents), len(drafts.counts)
        numbers[0, :used], numbers[0, used:] = drafts.parents, -1
        numbers[1, :requests] = np.cumsum(drafts.counts)
        numbers[1, requests:size] = np.arange(used + 1, used + 1 + size - requests).clip(max=size)  # one row each
        numbers[2:, :used], numbers[2:, used:] = drafts.settings, 0

    def _size(self, drafts: Drafts) -> int:
        return next(size for size in self._sizes if size >= len(drafts.parents))

    def capture(self, logits: torch.Tensor, memory: GraphMemory) -> None:
        """Capture the steps of all sizes up to ``len(logits)``, over rows of padding. ``logits``: the output of their passes."""
        for size in reversed(self._sizes):  # smaller captures use memory that larger captures have left
            for kind in range(KINDS):
                if size <= len(logits) and (size, kind) not in self._captured:
                    compute = partial(self._compute, logits[:size], kind)
                    self._captured[size, kind] = capture_graph(compute, memory, self._moves.device)

    def run(self, logits: torch.Tensor, drafts: Drafts) -> Walks:
        """End the step of a pass that gave ``logits``, which include rows of padding. Waits for the copy of the results."""
        size, kind = self._size(drafts), drafts.kind
        graph = self._captured.get((size, kind))
        if graph is None:
            self._compute(logits[:size], kind)
        else:
            graph.replay()
        if self._copied is not None:
            self._host.copy_(self._found, non_blocking=True)
            self._copied.record(torch.cuda.current_stream(self._moves.device))
            self._copied.synchronize()
        paths, counts, tokens = self._host.numpy()
        requests, begins = len(drafts.counts), np.cumsum(drafts.counts) - drafts.counts
        return Walks(begins.tolist(), counts[:requests].tolist(), tokens[:requests].tolist(), paths - 1)

    @torch.inference_mode()
    def _compute(self, logits: torch.Tensor, kind: int) -> None:
        """Sample tokens, walk along drafts, and move rows. A row of padding repeats the pass's first row, which is not moved."""
        rows, tables = len(logits), self._tables
        table, wanted = dict(zip(ROW_FIELDS, tables.rows, strict=True)), tables.wanted[:rows]
        positions = table["positions"][wanted] + 1 if kind else wanted  # greedy sampling reads no positions
        sampled = self._sample(logits, positions, self._settings[:, :rows], kind)
        with launching(sampled):
            kernels().walk_kernel[(rows,)](
                sampled, wanted, table["ids"], table["written"], self._parents, self._ends, *self._found, *self._moves,
                UNDECIDED, ON_HOST, power_of_two(rows), num_warps=1,
            )  # fmt: skip
        self._cache.move(*self._moves[:, :rows])
