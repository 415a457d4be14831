"""Computes exact lookups and drafts by scanning the corpus, and the accepted length of a tree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Path = tuple[int, ...]


class CorpusScan:
    """All documents in one array, which every query scans. Memory: 4 bytes a token."""

    def __init__(self, tokens: npt.NDArray[np.uint32], starts: npt.NDArray[np.int64]) -> None:
        self._tokens = tokens
        self._starts = starts

    def lookup(self, context: Sequence[int], max_match: int, min_match: int) -> tuple[int, int]:
        """Return length and count of the longest match; (0, 0) if there is none."""
        length, ends = self._longest(context, max_match)
        return (length, len(ends)) if length >= min_match else (0, 0)

    def draft(
        self, context: Sequence[int], max_match: int, min_match: int, max_depth: int, max_nodes: int
    ) -> list[tuple[Path, int]]:
        """Return (path, count) of the draft tree's nodes, ordered by falling count, then depth, then tokens."""
        length, ends = self._longest(context, max_match)
        if length < min_match or not length:
            return []
        # the end of each position's document
        limits = self._starts[np.searchsorted(self._starts, ends - 1, side="right")]
        places = ends
        nodes: list[tuple[Path, int]] = []
        groups = np.zeros(len(places), np.int64)  # the parent node of each occurrence
        names: list[Path] = [()]
        for depth in range(max_depth):
            inside = places + depth < limits
            places, limits, groups = places[inside], limits[inside], groups[inside]
            keys = groups << 32 | self._tokens[places + depth]
            found, groups, counts = np.unique(keys, return_inverse=True, return_counts=True)
            names = [(*names[int(key >> 32)], int(key & 0xFFFFFFFF)) for key in found]
            nodes.extend(zip(names, counts.tolist(), strict=True))
        return sorted(nodes, key=lambda node: (-node[1], len(node[0]), node[0]))[:max_nodes]

    def _longest(self, context: Sequence[int], max_match: int) -> tuple[int, npt.NDArray[np.int64]]:
        """Return the length of the longest match, and the positions after its occurrences."""
        length, ends = 0, np.empty(0, np.int64)
        for size in range(1, min(max_match, len(context)) + 1):
            token = context[len(context) - size]
            if size == 1:
                longer = np.flatnonzero(self._tokens == token) + 1
            else:
                begins = self._starts[np.searchsorted(self._starts, ends - 1, side="right") - 1]
                inside = ends[ends - size >= begins]
                longer = inside[self._tokens[inside - size] == token]
            if not len(longer):
                break
            length, ends = size, longer
        return length, ends


def accepted_length(paths: set[Path], continuation: Sequence[int]) -> int:
    """Count the tokens of a tree with these paths that a target accepts if it generates ``continuation``."""
    depth = 0
    while depth < len(continuation) and tuple(continuation[: depth + 1]) in paths:
        depth += 1
    return depth
