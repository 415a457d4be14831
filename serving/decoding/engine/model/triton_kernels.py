# mypy: ignore-errors
# Triton's language is not typed.
"""Triton kernels of graph passes: they write keys and values, attend in pieces, and merge the pieces (``row_attention.py``).

One more kernel walks along drafts (``device_step.py``).

All sums of attention follow the order of positions, in pieces of positions with fixed borders (``row_plan.Sizes``). So the bits
of a row's result do not depend on the other rows of the pass, or on where its ancestors lie among the rows of a tree. Three
properties are needed for this:

- a tile has the same shape for all numbers of rows, so all products use the same instructions;
- a position that a row does not see adds exact zeros;
- a partial result is merged with one explicit fused multiply-add, which a compiler cannot fuse in two ways.

``TRITON_INTERPRET=1`` runs the kernels on a CPU. It must be set before the first import of triton.
"""

import triton
import triton.language as tl
from triton.errors import TritonError

__all__ = ["TritonError", "attend_kernel", "merge_kernel", "walk_kernel", "write_kernel"]

_LOG2_E = tl.constexpr(1.4426950408889634)
_NEVER = tl.constexpr(float("inf"))
_FAR = tl.constexpr(1 << 30)


@triton.jit
def write_kernel(
    keys, values, cached_keys, cached_values, written, rows,
    key_row_stride, key_head_stride, value_row_stride, value_head_stride,
    heads: tl.constexpr, key_width: tl.constexpr, value_width: tl.constexpr,
    key_padded: tl.constexpr, value_padded: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Write the keys and values of a block of rows and one head to their cache rows; NaN and infinity become 0."""
    row, head = tl.program_id(0) * block + tl.arange(0, block), tl.program_id(1)
    used = row < rows
    place = tl.load(written + row, mask=used, other=0) * heads + head
    _write(keys, cached_keys, row, used, place, key_row_stride, head * key_head_stride, key_width, key_padded)
    _write(
        values, cached_values, row, used, place, value_row_stride, head * value_head_stride, value_width, value_padded
    )


@triton.jit
def _write(source, cached, row, used, place, row_stride, start, width: tl.constexpr, padded: tl.constexpr):
    column = tl.arange(0, padded)
    mask = used[:, None] & (column < width)[None, :]
    numbers = tl.load(source + row[:, None] * row_stride + start + column[None, :], mask=mask, other=0.0)
    numbers = tl.where(tl.abs(numbers.to(tl.float32)) < _NEVER, numbers, 0.0)
    tl.store(cached + place[:, None] * width + column[None, :], numbers, mask=mask)


@triton.jit
def attend_kernel(
    query, keys, values, sums, marks,
    positions, base, linear, path, first, count, items, paths,
    scaling, cap, window, row_stride, head_stride,
    fold: tl.constexpr, heads: tl.constexpr, key_width: tl.constexpr, value_width: tl.constexpr,
    key_padded: tl.constexpr, value_padded: tl.constexpr, tile: tl.constexpr,
    block: tl.constexpr, piece_size: tl.constexpr, group_size: tl.constexpr,
    capped: tl.constexpr, windowed: tl.constexpr, upcast: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """The partial results of the work items of one key head. An item is a few rows and a range of pieces within one group of
    pieces (``row_plan.Sizes``).

    A tile holds the query heads that share the key head, for all rows of an item.
    """
    head = tl.program_id(1)
    vector = tl.arange(0, tile)
    key_column, value_column = tl.arange(0, key_padded), tl.arange(0, value_padded)
    for number in range(tl.program_id(0), tl.load(count).to(tl.int32), tl.num_programs(0)):
        item = items + number * 5
        first_row, rows = tl.load(item).to(tl.int32), tl.load(item + 1).to(tl.int32)
        begin, end = tl.load(item + 2).to(tl.int32), tl.load(item + 3).to(tl.int32)
        order = tl.load(item + 4)
        group = begin // group_size
        used = vector < rows * fold
        row = first_row + vector // fold
        query_head = head * fold + vector % fold
        own = tl.load(positions + row, mask=used, other=-1).to(tl.int32)
        last = tl.max(own, 0)
        begin_row, shared = tl.load(base + first_row), tl.load(linear + first_row).to(tl.int32)
        own_path = paths + tl.load(path + first_row)
        if windowed:
            oldest = tl.min(tl.where(used, own, _FAR), 0) - window + 1
            begin = tl.maximum(begin, oldest // piece_size)
        end = tl.minimum(end, last // piece_size + 1)
        at = query + row[:, None] * row_stride + query_head[:, None] * head_stride + key_column[None, :]
        rows_of_query = tl.load(at, mask=used[:, None] & (key_column < key_width)[None, :], other=0.0)
        if upcast:
            rows_of_query = rows_of_query.to(tl.float32)
        best, total, result = _nothing(tile, value_padded)
        for piece in range(begin, end):
            piece_best, piece_total, piece_result = _nothing(tile, value_padded)
            for start in range(piece * piece_size, tl.minimum((piece + 1) * piece_size, last + 1), block):
                position = start + tl.arange(0, block)
                inside = position <= last
                along = inside & (position >= shared)
                place = tl.load(own_path + (position - shared), mask=along, other=0)
                place = (tl.where(along, place, begin_row + position) * heads + head)[:, None]
                seen = inside[None, :] & (position[None, :] <= own[:, None])
                if windowed:
                    seen = seen & (position[None, :] > own[:, None] - window)
                mask = inside[:, None] & (key_column < key_width)[None, :]
                found = tl.load(keys + place * key_width + key_column[None, :], mask=mask, other=0.0)
                if upcast:
                    found = found.to(tl.float32)
                scores = tl.dot(rows_of_query, tl.trans(found), input_precision=precision) * scaling
                if capped:
                    scores = cap - 2.0 * cap / (tl.exp(scores * (2.0 / cap)) + 1.0)  # cap * tanh(scores / cap)
                scores = tl.where(seen, scores * _LOG2_E, -_NEVER)
                higher = tl.maximum(piece_best, tl.max(scores, 1))
                safe = tl.where(higher == -_NEVER, 0.0, higher)
                weights, shift = tl.exp2(scores - safe[:, None]), tl.exp2(piece_best - safe)
                piece_total = tl.fma(piece_total, shift, tl.sum(weights, 1))
                mask = inside[:, None] & (value_column < value_width)[None, :]
                found = tl.load(values + place * value_width + value_column[None, :], mask=mask, other=0.0)
                weights = weights.to(found.dtype)
                if upcast:
                    found, weights = found.to(tl.float32), weights.to(tl.float32)
                piece_result = tl.dot(weights, found, piece_result * shift[:, None], input_precision=precision)
                piece_best = higher
            best, total, result = _merged(best, total, result, piece_best, piece_total, piece_result)
        place = (tl.load(first + row, mask=used, other=0) + order) * (heads * fold) + query_head
        mask = used[:, None] & (value_column < value_width)[None, :]
        tl.store(sums + place[:, None] * value_width + value_column[None, :], result, mask=mask)
        tl.store(marks + place * 3, best, mask=used)
        tl.store(marks + place * 3 + 1, total, mask=used)
        tl.store(marks + place * 3 + 2, group.to(tl.float32), mask=used)


@triton.jit
def merge_kernel(
    sums, marks, output, first, parts,
    fold: tl.constexpr, fold_padded: tl.constexpr, heads: tl.constexpr, width: tl.constexpr, padded: tl.constexpr,
):  # fmt: skip
    """The result of one row and key head: its partial results, merged within each group and then across groups, in order.

    A row of padding has no partial results, and gives 0.
    """
    row, head = tl.program_id(0), tl.program_id(1)
    member, column = tl.arange(0, fold_padded), tl.arange(0, padded)
    used = member < fold
    mask = used[:, None] & (column < width)[None, :]
    begin = tl.load(first + row)
    best, total, result = _nothing(fold_padded, padded)
    group_best, group_total, group_result = _nothing(fold_padded, padded)
    current = tl.full([], 0.0, tl.float32)
    for part in range(tl.load(parts + row).to(tl.int32)):
        leader = (begin + part) * (heads * fold) + head * fold
        place = leader + member
        group = tl.load(marks + leader * 3 + 2)
        if group != current:
            best, total, result = _merged(best, total, result, group_best, group_total, group_result)
            group_best, group_total, group_result = _nothing(fold_padded, padded)
            current = group
        part_best = tl.load(marks + place * 3, mask=used, other=-_NEVER)
        part_total = tl.load(marks + place * 3 + 1, mask=used, other=0.0)
        part_result = tl.load(sums + place[:, None] * width + column[None, :], mask=mask, other=0.0)
        group_best, group_total, group_result = _merged(
            group_best, group_total, group_result, part_best, part_total, part_result
        )
    best, total, result = _merged(best, total, result, group_best, group_total, group_result)
    result = result / tl.where(total == 0.0, 1.0, total)[:, None]
    place = output + (row * heads * fold + head * fold + member)[:, None] * width + column[None, :]
    tl.store(place, result.to(output.dtype.element_ty), mask=mask)


@triton.jit
def walk_kernel(
    sampled, wanted, ids, written, parents, ends, path, counts, tokens, source, target,
    undecided: tl.constexpr, on_host: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Follow the sampled tokens of one request down its draft. The first of equal siblings is used.

    ``path`` gets one number for each row of the request. If k rows are accepted, entries 1 to k are these rows. Every other
    entry is its own index. ``source`` and ``target`` get the cache rows from and to which rows move. Rows of a request have
    consecutive cache rows.
    """
    request = tl.program_id(0)
    begin, end = tl.load(ends + request - 1, mask=request > 0, other=0), tl.load(ends + request)
    cell = tl.arange(0, block).to(tl.int64)
    used = cell < end - begin
    row = tl.load(wanted + begin + cell, mask=used, other=0)
    token = tl.load(ids + row, mask=used, other=-1)
    parent = tl.load(parents + begin + cell, mask=used, other=-1)
    place = tl.load(written + row, mask=used, other=0)
    chosen, count = cell, tl.full([], 0, tl.int64)
    is_walked = tl.load(parents + begin, mask=begin < end, other=on_host) != on_host
    next_token = tl.load(sampled + begin, mask=is_walked, other=undecided)
    child = tl.min(tl.where((parent == 0) & (token == next_token), cell, block), 0)
    while child < block:
        count += 1
        chosen = tl.where(cell == count, child, chosen)
        next_token = tl.load(sampled + begin + child)
        child = tl.min(tl.where((parent == child) & (token == next_token), cell, block), 0)
    if next_token == undecided:  # the host samples all rows again
        chosen, count = cell, count * 0
    tl.store(path + begin + cell, chosen, mask=used)
    tl.store(counts + request, count)
    tl.store(tokens + request, next_token)
    tl.store(source + begin + cell, place + chosen - cell, mask=used)
    tl.store(target + begin + cell, place, mask=used)


@triton.jit
def _nothing(rows: tl.constexpr, width: tl.constexpr):
    """The result over no positions: the highest score, the sum of weights, the weighted sum of values."""
    return (
        tl.full([rows], -float("inf"), tl.float32),
        tl.zeros([rows], tl.float32),
        tl.zeros([rows, width], tl.float32),
    )


@triton.jit
def _merged(best, total, result, other_best, other_total, other_result):
    """The result over the positions of both partial results. If one has no positions, the result is exactly the other one."""
    higher = tl.maximum(best, other_best)
    safe = tl.where(higher == -float("inf"), 0.0, higher)
    mine, theirs = tl.exp2(best - safe), tl.exp2(other_best - safe)
    total = tl.fma(total, mine, other_total * theirs)
    return higher, total, tl.fma(result, mine[:, None], other_result * theirs[:, None])
