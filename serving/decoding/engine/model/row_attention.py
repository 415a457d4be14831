"""Attention of graph passes: Triton kernels that read all lengths, slots, ancestors and work items from the device's memory.

Only the number of rows shapes a launch. So a graph captured for a number of rows serves any requests, slots, trees and contexts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from suffolk.datastore.errors import Unsupported
from suffolk.serving.decoding.engine.model.kv_cache import SlabLayer
from suffolk.serving.decoding.engine.model.language_model import LanguageModel
from suffolk.serving.decoding.engine.model.row_plan import EVERYWHERE, ROW_FIELDS, RowPlan, Sizes
from suffolk.serving.decoding.engine.model.tree_attention import Terms
from suffolk.serving.decoding.engine.user_code_errors import message_line

TILE = 32
"""Query vectors of a work item (``row_plan.py``). Below 64, all NVIDIA GPUs use the same kind of instruction."""
_WRITTEN = 16
"""Rows that one program of ``write_kernel`` writes."""
_PROGRAMS = 128
"""Programs of ``attend_kernel`` for each key head. They share the work items."""
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def kernels() -> Any:
    """The module of the kernels. Raises Unsupported: triton is not installed."""
    try:
        from suffolk.serving.decoding.engine.model import triton_kernels
    except ImportError as error:
        raise Unsupported(f"triton cannot be imported ({error}); torch for CUDA brings it") from error
    return triton_kernels


@contextmanager
def launching(tensor: torch.Tensor) -> Iterator[None]:
    """Launch the block's kernels on the device of ``tensor``. Raises RuntimeError: Triton cannot compile or launch a kernel."""
    try:
        with torch.cuda.device_of(tensor):  # type: ignore[no-untyped-call]  # Triton launches on the current device
            yield
    except kernels().TritonError as error:
        raise RuntimeError(f"Triton: {message_line(error)}") from error


def is_interpreted() -> bool:
    """Whether the kernels run on the CPU, in Triton's interpreter (TRITON_INTERPRET=1)."""
    return type(kernels().merge_kernel).__name__ == "InterpretedFunction"


def kernel_problem(target: LanguageModel) -> str | None:
    """The reason why the kernels do not serve ``target``; None if they do.

    Raises:
        Unsupported: the model is not on CUDA, and the kernels are not interpreted.
    """
    try:
        interpreted = is_interpreted()
    except Unsupported as error:
        if target.device.type == "cuda":
            return str(error)
        raise
    if target.device.type != "cuda" and not interpreted:
        raise Unsupported(
            f"model {target.name}: graph passes are for CUDA, and it is on the {target.device}; use packed passes"
        )
    if target.dtype not in _DTYPES:
        return f"their kernels have no {str(target.dtype).removeprefix('torch.')}"
    return "some layers share the cache of another layer" if None in target.shapes else None


def rows_of_tile(target: LanguageModel) -> int:
    """The most rows of a work item: the query heads of this many rows fill a tile."""
    heads = int(target.model.config.get_text_config(decoder=True).num_attention_heads)
    return max(1, min(TILE * shape.heads // heads for shape in target.shapes if shape is not None))


class RowTables:
    """The numbers of one pass on the device. One copy, from pinned memory on CUDA, brings a whole ``RowPlan``.

    Passes of all sizes share this memory, because only one pass runs at a time.

    Attributes:
        rows: int64[fields, most rows], as in ``RowPlan``.
        wanted: int64[most wanted], the rows whose logits are computed.
        count: int64[1], the number of work items.
        work: int64[...], the work items and then the paths.
        extra, extra_numbers: int64[extra], further numbers in the same copy, on the device and on the host.
    """

    def __init__(self, rows: int, wanted: int, parts: int, spare: int, device: torch.device, extra: int = 0) -> None:
        """``parts``: the most partial results, at least one for each work item. ``spare``: the cache's spare row."""
        cuda = device.type == "cuda"
        self._spare = spare
        self._fixed = len(ROW_FIELDS) * rows + wanted + extra + 1
        size = self._fixed + 5 * parts + rows * (rows + 1) // 2
        self._host = torch.zeros(size, dtype=torch.int64, pin_memory=cuda)
        self._device = torch.zeros_like(self._host, device=device) if cuda else self._host
        self._copied = torch.cuda.Event() if cuda else None  # type: ignore[no-untyped-call]  # torch's own
        numbers: npt.NDArray[np.int64] = self._host.numpy()
        self._numbers, self._work = numbers, numbers[self._fixed :]
        end = len(ROW_FIELDS) * rows
        self._rows, self._wanted = numbers[:end].reshape(-1, rows), numbers[end : end + wanted]
        self.rows, self.wanted = self._device[:end].view(-1, rows), self._device[end : end + wanted]
        self.extra = self._device[end + wanted : self._fixed - 1]
        self.extra_numbers = numbers[end + wanted : self._fixed - 1]
        self.count, self.work = self._device[self._fixed - 1 : self._fixed], self._device[self._fixed :]

    def wait(self) -> None:
        """Wait until the numbers on the host may be changed, because the last copy has read them."""
        if self._copied is not None:
            self._copied.synchronize()

    def load(self, plan: RowPlan, wanted: npt.NDArray[np.int64], rows: int) -> None:
        """Set a pass over ``plan``, padded to ``rows`` rows, that computes the logits of the rows ``wanted``."""
        self.wait()
        used, items = plan.rows.shape[1], plan.items.size
        self._rows[:, :used] = plan.rows
        self._rows[:, used:rows] = np.array([0, 0, self._spare, 0, EVERYWHERE, 0, 0, 0])[:, None]
        self._rows[ROW_FIELDS.index("path"), :used] += items
        self._wanted[: len(wanted)] = wanted
        self._wanted[len(wanted) :] = 0
        self._numbers[self._fixed - 1] = len(plan.items)
        self._work[:items] = plan.items.ravel()
        self._work[items : items + len(plan.paths)] = plan.paths
        if self._copied is not None:
            end = self._fixed + items + len(plan.paths)
            self._device[:end].copy_(self._host[:end], non_blocking=True)
            self._copied.record(torch.cuda.current_stream(self._device.device))


@dataclass(frozen=True, slots=True)
class RowAttention:
    """The attention of a pass of ``rows`` rows. Not thread-safe.

    Attributes:
        layers: the cache's layers.
        tables: where the pass's plan is.
        partials: room for partial results.
        rows: rows of the pass, padding included.
        sizes: as in the plan.
    """

    layers: Sequence[SlabLayer]
    tables: RowTables
    partials: Partials
    rows: int
    sizes: Sizes

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, terms: Terms) -> torch.Tensor:
        """See ``PassAttention.attend``. Raises the errors of ``launching``."""
        with launching(query):
            return self._attend(query, key, value, terms)

    def _attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, terms: Terms) -> torch.Tensor:
        layer, numbers = self.layers[terms.layer], dict(zip(ROW_FIELDS, self.tables.rows, strict=True))
        query, key, value = (each if each.stride(-1) == 1 else each.contiguous() for each in (query, key, value))
        self._write(key, value, layer, numbers["written"])
        output = query.new_empty((1, self.rows, query.shape[1], layer.values.shape[-1]))
        sums, marks = self.partials.of(query.shape[1], output.shape[-1])
        self._attend_items(query, layer, numbers, sums, marks, terms)
        heads, fold = layer.keys.shape[1], query.shape[1] // layer.keys.shape[1]
        kernels().merge_kernel[(self.rows, heads)](
            sums, marks, output, numbers["first"], numbers["parts"],
            fold, power_of_two(fold), heads, output.shape[-1], power_of_two(output.shape[-1]), num_warps=2,
        )  # fmt: skip
        return output

    def _write(self, key: torch.Tensor, value: torch.Tensor, layer: SlabLayer, written: torch.Tensor) -> None:
        _, heads, key_width = layer.keys.shape
        value_width = layer.values.shape[-1]
        kernels().write_kernel[(-(-self.rows // _WRITTEN), heads)](
            key, value, layer.keys, layer.values, written, self.rows,
            key.stride(2), key.stride(1), value.stride(2), value.stride(1),
            heads, key_width, value_width, power_of_two(key_width), power_of_two(value_width), _WRITTEN, num_warps=2,
        )  # fmt: skip

    def _attend_items(
        self,
        query: torch.Tensor,
        layer: SlabLayer,
        numbers: dict[str, torch.Tensor],
        sums: torch.Tensor,
        marks: torch.Tensor,
        terms: Terms,
    ) -> None:
        _, heads, key_width = layer.keys.shape
        fold, value_width = query.shape[1] // heads, layer.values.shape[-1]
        upcast = query.dtype is torch.bfloat16 and is_interpreted()  # the interpreter cannot multiply bf16
        tables, sizes = self.tables, self.sizes
        tile = max(16, power_of_two(sizes.rows * fold))
        # with 4 warps, a larger tile does not fit into a thread's registers (ptxas, for A100, H100 and B200)
        warps = 4 if query.itemsize == 2 and value_width <= 128 and tile <= TILE else 8
        programs = min(_PROGRAMS, 4) if query.device.type == "cpu" else _PROGRAMS
        kernels().attend_kernel[(programs, heads)](
            query, layer.keys, layer.values, sums, marks,
            numbers["positions"], numbers["base"], numbers["linear"], numbers["path"], numbers["first"],
            tables.count, tables.work, tables.work,
            terms.scaling, terms.softcap or 0.0, terms.window or 0, query.stride(2), query.stride(1),
            fold, heads, key_width, value_width, max(16, power_of_two(key_width)), max(16, power_of_two(value_width)),
            tile, sizes.block, sizes.piece, sizes.group,
            terms.softcap is not None, terms.window is not None, upcast, "ieee", num_warps=warps, num_stages=2,
        )  # fmt: skip


class Partials:
    """Room for the partial results of one pass. It grows to the largest layer that asks, and all layers share it."""

    def __init__(self, parts: int, device: torch.device) -> None:
        self._parts, self._device = parts, device
        self._room = torch.empty(0)

    def of(self, heads: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Weighted sums float32[parts, heads, width] and marks float32[parts, heads, 3], both flat."""
        sums, marks = self._parts * heads * width, self._parts * heads * 3
        if self._room.numel() < sums + marks:
            self._room = torch.empty(sums + marks, dtype=torch.float32, device=self._device)
        return self._room[:sums], self._room[sums : sums + marks]


def power_of_two(number: int) -> int:
    """The smallest power of two that is at least ``number``."""
    return 1 << (number - 1).bit_length()
