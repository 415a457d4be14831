"""The table of next tokens in C++ equals the oracle: the same nodes with the same scores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffolk.datastore._native import NextTokenTable
from suffolk.datastore.draft_tree import DraftTree
from tests.support.drafting_oracle import OracleNextTokenTable, paths

VOCAB = 10
TOKENS = st.integers(0, VOCAB - 1)
LOGS = st.one_of(st.floats(-9, 0, width=32), st.sampled_from([-0.0, -500.0, -np.inf, np.inf, np.nan, 0.5]))


@st.composite
def distributions(draw: st.DrawFn) -> dict[int, float]:
    """Log probabilities by token, likeliest first."""
    tokens = draw(st.permutations(range(VOCAB)))[: NextTokenTable.WIDTH]
    logs = draw(st.lists(LOGS, min_size=NextTokenTable.WIDTH, max_size=NextTokenTable.WIDTH))
    return dict(zip(tokens, sorted(logs, reverse=True), strict=True))


@st.composite
def lessons(draw: st.DrawFn) -> list[tuple[list[int], list[dict[int, float]]]]:
    """Texts, each with the distributions of its last tokens."""
    known = draw(st.lists(distributions(), min_size=1, max_size=4))
    found = []
    for _ in range(draw(st.integers(0, 6))):
        text = draw(st.lists(TOKENS, min_size=1, max_size=12))
        rows = draw(st.lists(st.sampled_from(known), max_size=len(text) - 1))
        found.append((text, rows))
    return found


@given(
    lessons(),
    st.lists(TOKENS, max_size=8),
    st.sampled_from([0, 1, 77, 2**40]),
    st.integers(0, 5),
    st.integers(0, 40),
    st.integers(0, 2**64 - 1),
    st.sampled_from([0.0, 0.3, 0.7, 1.0, 5.0, np.inf]),
)
def test_drafts_are_the_oracles_after_any_lessons(
    lessons: list[tuple[list[int], list[dict[int, float]]]],
    text: list[int],
    position: int,
    max_depth: int,
    max_nodes: int,
    seed: int,
    temperature: float,
) -> None:
    table, oracle = NextTokenTable(1 << 14), OracleNextTokenTable()
    for tokens, rows in lessons:
        shape = (len(rows), NextTokenTable.WIDTH)
        candidates = np.array([list(distribution) for distribution in rows], np.int32).reshape(shape)
        logs = np.array([list(distribution.values()) for distribution in rows], np.float32).reshape(shape)
        table.learn(np.array(tokens, np.int32), candidates, logs)
        oracle.learn(tokens, rows)
    assert table.size == len(oracle)

    learned = [each[:-1] for each, _ in lessons]
    unlike = [[VOCAB, *each[-order:]] for order, each in enumerate(learned, 1)]  # at most `order` tokens are known
    for tokens in (text, *learned, *unlike):
        given = np.array(tokens, np.int32)
        ids, parents, scores = table.draft(given, position, max_depth, max_nodes, seed, temperature)
        assert (ids.dtype, parents.dtype, scores.dtype) == (np.int32, np.int32, np.float32)
        assert np.all(parents < np.arange(len(ids)))
        assert np.all(np.diff(scores) <= 0)
        # Equal scores may come in any order, so compare the scores, then each score with that of its path.
        best = oracle.draft(tokens, position, max_depth, max_nodes, seed, temperature)
        assert scores.tolist() == pytest.approx(best, abs=1e-5)
        found = paths(DraftTree(ids, parents, scores, np.zeros(len(ids), np.uint32), None, 0, 0))
        assert len(set(found)) == len(found) <= max_nodes
        expected = {(): 1.0}
        for path in found:
            assert len(path) <= max_depth
            above = [*tokens, *path[:-1]]
            chances = oracle.chances(above, position + len(path) - 1, seed, temperature)
            expected[path] = expected[path[:-1]] * chances[path[-1]]
        assert scores.tolist() == pytest.approx([expected[path] for path in found], abs=1e-5)
        last = table.draft(given[-NextTokenTable.ORDER :], position, max_depth, max_nodes, seed, temperature)
        assert [each.tolist() for each in last] == [each.tolist() for each in (ids, parents, scores)]
