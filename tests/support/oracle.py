"""A brute-force oracle of lookup and draft that is short enough to check by reading."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def occurrences(documents: Sequence[Sequence[int]], pattern: Sequence[int]) -> list[tuple[int, int]]:
    """Return (document, offset just after the pattern) of every occurrence of the pattern in a document."""
    size = len(pattern)
    return [
        (number, start + size)
        for number, document in enumerate(documents)
        for start in range(len(document) - size + 1)
        if list(document[start : start + size]) == list(pattern)
    ]


def holders(documents: Sequence[Sequence[int]], text: Sequence[int]) -> int:
    """The number of documents that hold ``text``."""
    return len({number for number, _ in occurrences(documents, text)})


def lookup(
    documents: Sequence[Sequence[int]], context: Sequence[int], max_match: int, min_match: int
) -> tuple[int, int]:
    for length in range(min(max_match, len(context)), min_match - 1, -1):
        count = len(occurrences(documents, context[len(context) - length :]))
        if count:
            return length, count
    return 0, 0


def draft(
    documents: Sequence[Sequence[int]],
    context: Sequence[int],
    max_match: int,
    min_match: int,
    max_depth: int,
    max_nodes: int,
) -> list[tuple[tuple[int, ...], int]]:
    """Return (path, count) of the nodes, ordered by falling count, then depth, then tokens."""
    length, _ = lookup(documents, context, max_match, min_match)
    if not length:
        return []
    counts: Counter[tuple[int, ...]] = Counter()
    for number, start in occurrences(documents, context[len(context) - length :]):
        following = documents[number][start : start + max_depth]
        counts.update(tuple(following[:depth]) for depth in range(1, len(following) + 1))
    return sorted(counts.items(), key=lambda item: (-item[1], len(item[0]), item[0]))[:max_nodes]
