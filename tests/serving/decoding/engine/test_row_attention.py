"""The attention of graph passes equals that of packed ones, and gives a row the same bits in any pass."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tests.support.interpreted_kernels  # noqa: F401
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import Internal
from suffolk.serving.decoding.engine.model import row_attention
from suffolk.serving.decoding.engine.model.kv_cache import SlabLayer
from suffolk.serving.decoding.engine.model.row_attention import Partials, RowAttention, RowTables
from suffolk.serving.decoding.engine.model.row_plan import Sizes, plan_rows
from suffolk.serving.decoding.engine.model.tree_attention import PackedRows, Terms, find_places
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout, chain, lay_out
from tests.support.drafters import random_tree

CPU = torch.device("cpu")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SMALL, SMALLER = Sizes(rows=4, block=16, piece=32, group=2), Sizes(rows=4, block=16, piece=16, group=2)
"""Pieces that short texts fill."""


def attend(
    layer: SlabLayer,
    lengths: Sequence[int],
    layouts: Sequence[TreeLayout],
    tensors: Sequence[torch.Tensor],
    terms: Terms,
    parts: int = 1000,
    sizes: Sizes = SMALL,
) -> torch.Tensor:
    """The attention of a pass over one request in each slot, with a row of padding: [rows, heads, width]."""
    rows, capacity = sum(map(len, layouts)), (len(layer.keys) - 1) // len(lengths)
    plan = plan_rows(np.array(lengths), capacity, range(len(lengths)), layouts, sizes, parts)
    parts = max(parts, sizes.most_parts(rows, capacity))
    tables = RowTables(rows + 1, 1, parts, len(layer.keys) - 1, CPU)
    tables.load(plan, np.zeros(1, np.int64), rows + 1)
    padded = [torch.cat([tensor, tensor[:, :, :1]], 2) for tensor in tensors]
    attention = RowAttention([layer], tables, Partials(parts, CPU), rows + 1, sizes)
    return attention.attend(*padded, terms)[0, :rows]  # type: ignore[arg-type]


def random_numbers(seed: int, dtype: torch.dtype, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


@settings(max_examples=5, derandomize=True)
@given(
    seed=st.integers(0, 1 << 30),
    requests=st.lists(st.tuples(st.integers(0, 70), st.integers(0, 9), st.booleans()), min_size=1, max_size=2),
    heads=st.sampled_from([(1, 1), (3, 1), (2, 2), (4, 2)]),
    widths=st.sampled_from([(16, 16), (24, 8), (8, 20)]),
    window=st.none() | st.integers(1, 60),
    softcap=st.none() | st.just(1.5),
    dtype=st.sampled_from(DTYPES),
    parts=st.sampled_from([0, 1000]),
)
def test_it_equals_packed_attention(
    seed: int,
    requests: list[tuple[int, int, bool]],
    heads: tuple[int, int],
    widths: tuple[int, int],
    window: int | None,
    softcap: float | None,
    dtype: torch.dtype,
    parts: int,
) -> None:
    """Random trees and chains after random contexts, with windows, caps, folded heads, and different widths.

    The cache is full of NaN where a pass must not read.
    """
    rng, capacity, terms = np.random.default_rng(seed), 90, Terms(0.3, window, softcap)
    lengths = [length for length, _, _ in requests]
    layouts = [
        chain(np.arange(size + 1)) if is_chain else lay_out(1, random_tree(rng, size, 97))
        for _, size, is_chain in requests
    ]
    rows, slab = sum(map(len, layouts)), len(requests) * capacity + 1
    query, key, value, keys, values = random_numbers(
        seed,
        dtype,
        (1, heads[0], rows, widths[0]),
        (1, heads[1], rows, widths[0]),
        (1, heads[1], rows, widths[1]),
        (slab, heads[1], widths[0]),
        (slab, heads[1], widths[1]),
    )
    for slot, length in enumerate(lengths):
        keys[slot * capacity + length : (slot + 1) * capacity] = values[slot * capacity + length :][:1] = torch.nan
    layer = SlabLayer(keys, values)
    found = attend(layer, lengths, layouts, (query, key, value), terms, parts)
    places = find_places(np.array(lengths), capacity, range(len(requests)), layouts)
    assert torch.equal(layer.keys[places.rows], key[0].transpose(0, 1))
    assert torch.equal(layer.values[places.rows], value[0].transpose(0, 1))
    exact = [tensor.double() for tensor in (query, layer.keys.nan_to_num(), layer.values.nan_to_num())]
    expected = PackedRows(places.spans).attend(*exact, terms)[0].transpose(0, 1)
    assert (found.double() - expected).abs().max() < 8 * torch.finfo(dtype).eps * layer.values.nan_to_num().abs().max()


@pytest.mark.parametrize(("dtype", "window"), [(torch.float32, None), (torch.bfloat16, 40)])
def test_a_row_has_the_same_bits_in_any_pass(dtype: torch.dtype, window: int | None) -> None:
    """The end of a text is read token by token, in chunks, as the deepest path of a tree, and beside another request.

    In the tree, wrong tokens lie between those of the text. A piece ends at position 80.
    """
    first, last, terms = 78, 82, Terms(0.25, window, None)
    shapes = (1, 2, 90, 16), (1, 1, 90, 16), (1, 1, 90, 16)
    right, wrong = random_numbers(0, dtype, *shapes), random_numbers(1, dtype, *shapes)

    def read(*requests: tuple[TreeLayout, Any], parts: int = 1000) -> torch.Tensor:
        """The results of the last of ``requests``: layouts, and the positions of their rows; -p for a wrong token."""
        at = np.concatenate([positions for _, positions in requests])
        tensors = [
            torch.where(torch.from_numpy(at >= 0)[:, None], one[:, :, abs(at)], other[:, :, abs(at)])
            for one, other in zip(right, wrong, strict=True)
        ]
        cached = (torch.cat([each[0].transpose(0, 1)] * len(requests) + [each[0, :, :1]]) for each in right[1:])
        lengths, layouts = [int(positions[0]) for _, positions in requests], [layout for layout, _ in requests]
        return attend(SlabLayer(*cached), lengths, layouts, tensors, terms, parts, SMALLER)[-len(layouts[-1]) :]

    text = np.arange(first, last)
    alone = torch.cat([read((chain(part), part)) for part in np.split(text, len(text))])
    assert torch.equal(torch.cat([read((chain(part), part)) for part in np.array_split(text, 2)]), alone)
    tree, nodes = lay_out(1, comb(len(text) - 1)), np.stack([-text, text], 1).ravel()[1:]
    assert torch.equal(read((tree, nodes))[::2], alone)
    whole_groups = read((chain(text[:2]), text[:2]), (tree, nodes), parts=0)
    assert torch.equal(whole_groups[::2], alone)


def comb(depth: int) -> DraftTree:
    """A path of ``depth`` nodes, each after a sibling: nodes 1, 3, 5, ..."""
    parents = np.repeat(np.arange(-1, 2 * depth - 2, 2), 2).astype(np.int32)
    return DraftTree(
        np.arange(2 * depth, dtype=np.int32), parents, np.ones(2 * depth, np.float32), np.ones(2 * depth, np.uint32)
    )


def test_a_tree_of_1024_nodes_has_a_path_for_each_row() -> None:
    """Without the interpreter: the plan of a deep tree reads each row's own ancestors."""
    tree = lay_out(1, random_tree(np.random.default_rng(0), 1024, 97))
    plan = plan_rows(np.array([0, 300]), 2000, [1], [tree], Sizes(8), 10**6)
    rows = dict(zip(("ids", "positions", "written", "base", "linear", "path"), plan.rows, strict=False))
    assert tree.visible is not None
    for row in (0, 7, 1024):
        begin, depth = rows["path"][row], rows["positions"][row] - 300
        path = plan.paths[begin : begin + depth + 1]
        assert (path - 2300).tolist() == np.flatnonzero(tree.visible[row]).tolist()
    assert rows["written"].tolist() == list(range(2300, 3325))


def test_work_covers_each_position_once() -> None:
    rng = np.random.default_rng(0)
    for parts in (0, 10**6):
        lengths = rng.integers(0, 900, 5)
        layouts = [chain(np.arange(40)), *(lay_out(1, random_tree(rng, int(size), 97)) for size in (0, 3, 60, 200))]
        plan = plan_rows(lengths, 2000, range(5), layouts, Sizes(5, 16, 32, 4), parts)
        covered: dict[int, list[tuple[int, int, int]]] = {}
        for first, count, begin, end, order in plan.items.tolist():
            assert end - begin == 1 or begin % 4 == 0
            assert begin // 4 == (end - 1) // 4
            for row in range(first, first + count):
                covered.setdefault(row, []).append((order, begin, end))
        for row, own in enumerate(plan.rows[1]):
            pieces = sorted(covered[row])
            assert [order for order, _, _ in pieces] == list(range(plan.rows[7, row]))
            assert [begin for _, begin, _ in pieces] == [0, *(end for _, _, end in pieces)][:-1]
            assert pieces[-1][2] * 32 > own


COMPILE = """
import sys
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from suffolk.serving.decoding.engine.model import triton_kernels
kernel = triton_kernels.attend_kernel
numbers = dict(fold=4, heads=8, key_width=128, value_width=128, key_padded=128, value_padded=128, tile=int(sys.argv[1]),
               block=64, piece_size=256, group_size=16, capped=False, windowed=True, upcast=False, precision="ieee")
types = dict.fromkeys(kernel.arg_names, "*i64") | dict.fromkeys(("query", "keys", "values"), "*bf16")
types |= dict.fromkeys(("sums", "marks"), "*fp32") | dict.fromkeys(("scaling", "cap"), "fp32")
types |= dict.fromkeys(("window", "row_stride", "head_stride"), "i32") | dict.fromkeys(numbers, "constexpr")
source = ASTSource(kernel, types, {(kernel.arg_names.index(name),): number for name, number in numbers.items()})
print(compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, "num_stages": 2}).asm["ptx"])
"""


def test_tiles_compile_to_one_kind_of_product_for_cuda() -> None:
    """On GPUs of 2022, too, where larger tiles would take other instructions, which may round otherwise."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", COMPILE, str(row_attention.TILE)]
    code = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"\b(mma\.sync|wgmma|tcgen05)\b", code)) == {"mma.sync"}
    assert len(set(re.findall(r"mma\.sync\S+", code))) == 1


def test_rows_that_do_not_fit_a_slot_are_refused() -> None:
    with pytest.raises(Internal, match="slot 1: 7 rows taken and 4 new ones; it has 10"):
        plan_rows(np.array([0, 7]), 10, [1], [chain(np.arange(4))], SMALL, 10)
