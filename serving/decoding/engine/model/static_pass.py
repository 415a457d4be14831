"""A forward pass of static shape. CUDA can capture the pass as a graph and replay it.

A CUDA pass over few rows is bound by hundreds of kernel launches; a replayed graph is one launch. On CPUs the pass is not
captured, and gains nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from suffolk.serving.decoding.engine.model.graph_capture import CapturedPass, GraphMemory, capture_pass
from suffolk.serving.decoding.engine.model.grid_attention import WORD, Bucket, Grid
from suffolk.serving.decoding.engine.model.kv_cache import KVCache
from suffolk.serving.decoding.engine.model.language_model import LanguageModel
from suffolk.serving.decoding.engine.model.pass_result import PassResult, run_model
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout, positions_within


class StaticPass:
    """One pass over the rows of several requests, padded to a bucket. Not thread-safe.

    Unused rows write to the cache's spare row, which every mask hides. All inputs go to the device in one copy, on CUDA from
    pinned memory.
    """

    def __init__(self, target: LanguageModel, cache: KVCache, bucket: Bucket, layers: tuple[int, ...] = ()) -> None:
        """``layers``: layers whose hidden states are returned. ``cache`` must keep its slots and capacity."""
        self._target, self._cache, self._bucket, self._layers = target, cache, bucket, layers
        self._capacity = cache.capacity
        cuda = target.device.type == "cuda"
        rows, grid = bucket.rows, (bucket.slots, bucket.cells)
        shapes: dict[str, tuple[int, ...]] = {
            "ids": (rows,),
            "positions": (rows,),
            "written": (rows,),
            "places": (rows,),
        }
        shapes |= {"members": grid, "lengths": grid[:1], "depths": grid, "ancestors": (*grid, -(-grid[1] // WORD))}
        sizes = [int(np.prod(shape)) for shape in shapes.values()]
        self._host = torch.zeros(sum(sizes), dtype=torch.int64, pin_memory=cuda)
        self._inputs = torch.zeros_like(self._host, device=target.device) if cuda else self._host
        self._numbers = _cut(self._host.numpy(), shapes, sizes)
        self._tensors = _cut(self._inputs, shapes, sizes)
        self._alone = _words(np.eye(grid[1], -(-grid[1] // WORD) * WORD, dtype=np.bool_))
        self._copied = torch.cuda.Event() if cuda else None  # type: ignore[no-untyped-call]  # torch's own
        self._captured: CapturedPass | None = None

    @property
    def is_captured(self) -> bool:
        return self._captured is not None

    def load(self, slots: Sequence[int], layouts: Sequence[TreeLayout]) -> int:
        """Set the rows of the pass, in the order of ``layouts``, which must fit the bucket. Returns their number."""
        numbers, cells = self._numbers, self._bucket.cells
        if self._copied is not None:
            self._copied.synchronize()  # the last copy may still read it
        self._host.zero_()
        numbers["written"][:] = self._cache.spare
        numbers["ancestors"][:] = self._alone
        chosen = np.asarray(slots, np.int64)
        counts = np.fromiter(map(len, layouts), np.int64, len(layouts))
        slot, order, rows = np.repeat(chosen, counts), positions_within(counts), int(counts.sum())
        lengths, places = self._cache.lengths[slot], slot * cells + order
        depths = np.concatenate([layout.depths for layout in layouts])
        numbers["ids"][:rows] = np.concatenate([layout.tokens for layout in layouts])
        numbers["positions"][:rows] = lengths + depths
        numbers["written"][:rows] = slot * self._capacity + lengths + order
        numbers["places"][:rows] = places
        numbers["members"].ravel()[places] = np.arange(rows)
        numbers["lengths"][chosen] = self._cache.lengths[chosen]
        numbers["depths"].ravel()[places] = depths
        if rows > len(layouts):
            numbers["ancestors"].reshape(-1, self._alone.shape[1])[places] = _ancestors(layouts, counts, cells)
        if self._copied is not None:
            self._inputs.copy_(self._host, non_blocking=True)
            self._copied.record(torch.cuda.current_stream(self._target.device))
        return rows

    @torch.inference_mode()
    def compute(self) -> PassResult:
        """The result for the loaded rows, padded to the rows of the bucket."""
        inputs = self._tensors
        grid = Grid(
            bucket=self._bucket,
            capacity=self._capacity,
            members=inputs["members"].flatten(),
            places=inputs["places"],
            lengths=inputs["lengths"],
            depths=inputs["depths"],
            ancestors=inputs["ancestors"],
        )
        self._cache.place(inputs["written"])
        ids, positions, target = inputs["ids"][None], inputs["positions"][None], self._target
        return run_model(target.model, ids, positions, self._cache.layers, grid, target.vocab_size, self._layers)

    def capture(self, memory: GraphMemory) -> None:
        """Capture ``compute`` as a CUDA graph. The rows of a real pass must be loaded. Raises the errors of ``capture_pass``."""
        self._captured = capture_pass(self.compute, memory, self._target.device)

    def run(self) -> PassResult:
        """The same as ``compute``, by replaying the graph if there is one. The next graph of the same memory overwrites the
        result."""
        return self.compute() if self._captured is None else self._captured.replay()


def _cut(numbers: Any, shapes: dict[str, tuple[int, ...]], sizes: Sequence[int]) -> dict[str, Any]:
    """Consecutive views of ``numbers`` with the given shapes."""
    ends = np.cumsum(sizes)
    return {
        name: numbers[end - size : end].reshape(shape)
        for (name, shape), size, end in zip(shapes.items(), sizes, ends.tolist(), strict=True)
    }


def _ancestors(layouts: Sequence[TreeLayout], counts: npt.NDArray[np.int64], cells: int) -> npt.NDArray[np.int64]:
    """int64[rows, words], the rows that each row of ``layouts`` sees, as bits."""
    seen = [np.tri(len(each), dtype=np.bool_) if each.visible is None else each.visible for each in layouts]
    bits = np.zeros((int(counts.sum()), -(-cells // WORD) * WORD), np.bool_)
    widths = np.repeat(counts, counts)  # entries of each row in ``seen``
    row = np.repeat(np.arange(len(widths)), widths)
    bits[row, positions_within(widths)] = np.concatenate([each.ravel() for each in seen])
    return _words(bits)


def _words(bits: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """int64[rows, words], the bits of bool[rows, words * WORD] in little-endian words."""
    return np.packbits(bits, axis=1, bitorder="little").view("<i8")
