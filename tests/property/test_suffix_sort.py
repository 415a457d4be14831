"""Suffix sorting equals a numpy oracle, on texts large enough for groups, radix passes and the directory."""

import numpy as np
import pytest

from suffolk.datastore import _native
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.manifest import Manifest, publish
from suffolk.datastore.segment import separator, token_dtype, write_segment


def _oracle(tokens: np.ndarray, order_depth: int) -> np.ndarray:
    """Positions sorted by the first ``order_depth`` tokens, ties by position.

    A suffix at the end of its text sorts last.
    """
    end = separator(tokens.dtype)
    columns = np.full((order_depth, len(tokens)), end, np.uint32)
    alive = np.ones(len(tokens), bool)
    for depth in range(order_depth):
        shifted = np.append(tokens[depth:], np.full(depth, end, tokens.dtype))
        columns[depth][alive] = shifted[alive]
        alive &= shifted != end
    starts = np.flatnonzero(tokens != end)
    return starts[np.lexsort(columns[::-1, starts])].astype(np.uint32)


def _random(generator: np.random.Generator, size: int, vocab_size: int) -> np.ndarray:
    return (generator.zipf(1.3, size) % vocab_size).astype(token_dtype(vocab_size))


def _repeated(generator: np.random.Generator, size: int, vocab_size: int) -> np.ndarray:
    """A file that is repeated, so every suffix equals others in its first order_depth tokens."""
    return np.tile(_random(generator, 997, vocab_size), size // 997 + 1)[:size]


def _constant(generator: np.random.Generator, size: int, vocab_size: int) -> np.ndarray:
    return np.full(size, vocab_size - 1, token_dtype(vocab_size))


def _descending(generator: np.random.Generator, size: int, vocab_size: int) -> np.ndarray:
    """A text in which the place of every suffix depends on the next suffix, in chains through all groups."""
    return (vocab_size - 1 - np.arange(size) % vocab_size).astype(token_dtype(vocab_size))


def _nearly_repeated(generator: np.random.Generator, size: int, vocab_size: int) -> np.ndarray:
    """Passages of about order_depth tokens that are repeated with different tokens after them.

    So many suffixes have that many equal tokens.
    """
    passages = [_random(generator, length, vocab_size) for length in (8, 65, 66, 70)]
    parts = [
        part for _ in range(size // 9) for part in (passages[generator.integers(4)], _random(generator, 1, vocab_size))
    ]
    return np.concatenate(parts)[:size]


@pytest.mark.parametrize("text", [_random, _repeated, _constant, _descending, _nearly_repeated])
@pytest.mark.parametrize("vocab_size", [3, 60_000, 70_000])
@pytest.mark.parametrize(("order_depth", "document"), [(1, 100), (7, 30), (64, 100_000), (64, 500)])
def test_positions_are_in_order_for_any_number_of_threads(text, vocab_size, order_depth, document):
    tokens = text(np.random.default_rng(vocab_size), 70_000, vocab_size)
    tokens[document - 1 :: document] = separator(tokens.dtype)
    tokens[-1] = separator(tokens.dtype)
    expected = _oracle(tokens, order_depth)
    for threads in (1, 3):
        assert np.array_equal(_native.sort_suffixes(tokens, vocab_size, order_depth, threads), expected)


@pytest.mark.parametrize("vocab_size", [40, 70_000, 1 << 24])
@pytest.mark.parametrize("order_depth", [3, 64])
def test_the_directory_changes_no_answer(tmp_path, vocab_size, order_depth):
    """The text has runs of thousands of suffixes, so that searches and drafts use the directory.

    The oracle scans the tokens.
    """
    generator = np.random.default_rng(7)
    tokens = (generator.zipf(1.5, 40_000) % 40).astype(token_dtype(vocab_size)) + (vocab_size - 40)
    tokens = tokens.astype(token_dtype(vocab_size))
    end = separator(tokens.dtype)
    tokens[999::1000] = end
    (tmp_path / "segments").mkdir()
    entry = write_segment(tmp_path / "segments" / "a.segment", tokens, vocab_size=vocab_size, order_depth=order_depth)
    publish(tmp_path, Manifest(1, (entry,), vocab_size, order_depth, None, "2026-01-01T00:00:00+00:00"))
    text = np.where(tokens == end, -1, tokens.astype(np.int64))
    depth = min(2, order_depth - 1)
    with open_datastore(tmp_path) as store:
        store.verify("full")
        for length in (1, 2, 3, 4, 6, 9)[: 2 if order_depth == 3 else None]:
            for start in generator.integers(0, len(tokens) - 10, 12):
                pattern = text[start : start + length]
                if (pattern < 0).any():
                    continue
                found = _occurrences(text, pattern)
                assert store.lookup(pattern, max_match=length, min_match=length) == (length, len(found))
                if length + depth > order_depth:
                    continue
                tree = store.draft(pattern, max_match=length, min_match=length, max_depth=depth, max_nodes=100_000 // 2)
                counts = _continuations(text, found, length, depth)
                assert dict(zip(_paths(tree), tree.counts.tolist(), strict=True)) == counts
                few = store.draft(pattern, max_match=length, min_match=length, max_depth=depth, max_nodes=5)
                assert few.counts.tolist() == tree.counts[:5].tolist()


def _occurrences(text: np.ndarray, pattern: np.ndarray) -> np.ndarray:
    hits = np.ones(len(text) - len(pattern) + 1, bool)
    for place, token in enumerate(pattern):
        hits &= text[place : len(text) - len(pattern) + 1 + place] == token
    return np.flatnonzero(hits)


def _continuations(text: np.ndarray, found: np.ndarray, length: int, depth: int) -> dict[tuple[int, ...], int]:
    counts: dict[tuple[int, ...], int] = {}
    for at in found:
        following = text[at + length : at + length + depth].tolist()
        path = following[: following.index(-1)] if -1 in following else following
        for end in range(1, len(path) + 1):
            counts[tuple(path[:end])] = counts.get(tuple(path[:end]), 0) + 1
    return counts


def _paths(tree) -> list[tuple[int, ...]]:
    paths: list[tuple[int, ...]] = []
    for token, parent in zip(tree.tokens.tolist(), tree.parents.tolist(), strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    return paths
