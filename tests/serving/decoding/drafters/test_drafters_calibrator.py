"""Tests the calibrator: its evidence, and its convergence to the true probabilities."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.drafters.calibration.calibrator import Calibrator
from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PRIOR
from suffolk.serving.decoding.drafters.retrieval.retrieval_source import merge
from tests.support.drafters import scored, teach
from tests.support.drafting_oracle import evidence


def counted(tokens: list[int], parents: list[int], counts: list[int], length: int, count: int) -> DraftTree:
    size = len(tokens)
    return DraftTree(
        np.array(tokens, np.int32),
        np.array(parents, np.int32),
        np.zeros(size, np.float32),
        np.zeros(size, np.uint32),
        np.array(counts, np.uint64),
        length,
        count,
    )


FORK = counted([5, 6, 7, 8, 9], [-1, -1, 0, 0, 2], [6, 3, 4, 2, 4], 3, 10)


@pytest.mark.parametrize(
    ("tokens", "tried", "taken"),
    [
        ([5, 7, 9, 1], [0, 1, 2, 3, 4], [0, 2, 4]),
        ([5, 8, 9], [0, 1, 2, 3], [0, 3]),
        ([5], [0, 1], [0]),
        ([1, 7], [0, 1], []),
    ],
)
def test_only_nodes_below_what_was_taken_are_evidence(tokens: list[int], tried: list[int], taken: list[int]) -> None:
    assert evidence(FORK, tokens) == (tried, taken)


def test_no_child_is_likelier_than_its_parent_nor_all_siblings_than_certain() -> None:
    scores = scored(Calibrator(PRIOR), FORK).scores
    assert np.all((scores > 0) & (scores <= 1))
    assert np.all(scores[2:] <= scores[FORK.parents[2:]])
    wide = counted(list(range(40)), [-1] * 40, [1] * 40, 16, 40)
    assert scored(Calibrator(PRIOR), wide).scores.sum() <= 1.0 + 1e-6


def test_longer_matches_and_larger_shares_promise_more() -> None:
    def chance(length: int, share: int) -> float:
        return float(scored(Calibrator(PRIOR), counted([1], [-1], [share], length, 10)).scores[0])

    assert chance(1, 5) < chance(4, 5) < chance(16, 5)
    assert chance(4, 1) < chance(4, 5) < chance(4, 10)


def test_what_has_faded_is_forgotten_and_does_not_linger() -> None:
    """Regression: cells without new evidence used to decay to subnormal numbers.

    These slow a processor down, and were never removed.
    """
    calibrator = Calibrator(PRIOR, decay=0.9)
    teach(calibrator, counted([1], [-1], [8], 4, 10), [1])  # a hit, and never again
    teach(calibrator, counted([1], [-1], [2], 20, 40), [1])  # never seen again
    for _ in range(8000):
        teach(calibrator, counted([1], [-1], [8], 4, 10), [2])
    hits, seen = calibrator.state().reshape(-1, 2).T
    assert not hits.any()
    assert sorted(seen[seen > 0]) == pytest.approx([10.0, 10.0])  # of one cell, coarse and fine


@pytest.mark.parametrize("truth", [0.05, 0.4, 0.9])
def test_it_learns_how_often_a_kind_of_node_is_taken(truth: float) -> None:
    rng = np.random.default_rng(0)
    calibrator = Calibrator(PRIOR)
    kind = counted([1, 2], [-1, 0], [8, 8], 4, 10)
    for _ in range(1500):
        teach(calibrator, kind, [1 if rng.random() < truth else 0, 2])
    scores = scored(calibrator, kind).scores
    assert scores[0] == pytest.approx(truth, abs=0.08)
    assert scores[1] / scores[0] > 0.85  # the second was accepted whenever the first was


def test_it_follows_a_change() -> None:
    calibrator = Calibrator(PRIOR, decay=0.98)
    kind = counted([1], [-1], [8], 4, 10)
    for token in [1] * 300 + [0] * 300:
        teach(calibrator, kind, [token])
    assert scored(calibrator, kind).scores[0] < 0.25


def test_an_empty_tree_teaches_and_scores_nothing() -> None:
    calibrator = Calibrator(PRIOR)
    teach(calibrator, DraftTree.empty(), [1])
    assert len(scored(calibrator, DraftTree.empty()).scores) == 0


def test_a_tree_is_sorted_and_cut() -> None:
    scores = np.array([0.375, 0.5, 0.25, 0.125, 0.25], np.float32)
    best = merge([replace(FORK, scores=scores, sources=np.ones(5, np.uint32))], 4)
    assert best.tokens.tolist() == [6, 5, 7, 9]
    assert best.parents.tolist() == [-1, -1, 1, 2]
    assert best.scores.tolist() == pytest.approx([0.5, 0.375, 0.25, 0.25])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parents": np.array([-1, -1, 0, 3, 2], np.int32)}, "node 3 has parent 3"),
        ({"parents": np.array([-1, -2, 0, 0, 2], np.int32)}, "node 1 has parent -2"),
        ({"parents": np.array([-1, 2**31 - 1, 0, 0, 2], np.int32)}, "node 1 has parent 2147483647"),
        ({"parents": FORK.parents[:4]}, "parents has 4 entries, tokens has 5"),
        ({"parents": FORK.parents.astype(np.int64)}, "parents is int64 with 1 axes; it must be an array of int32"),
        ({"tokens": FORK.tokens[None]}, "tokens is int32 with 2 axes"),
        ({"tokens": [5, 6, 7, 8, 9]}, "tokens is list; it must be an array of int32"),
        ({"counts": np.ones(4, np.uint64)}, "counts has 4 entries, tokens has 5"),
        ({"counts": np.ones(5)}, "counts is float64"),
        ({"match_length": -1}, "match_length is -1; it must be 0 to 2"),
        ({"match_count": 2**64}, "match_count is 18446744073709551616"),
        ({"match_count": 1.5}, "match_count is 1.5"),
    ],
)
def test_what_is_no_tree_is_neither_scored_nor_learned(change: dict[str, Any], message: str) -> None:
    calibrator = Calibrator(PRIOR)
    before = scored(calibrator, FORK).scores
    with pytest.raises(InvalidArgument, match=message):
        scored(calibrator, replace(FORK, **change))
    with pytest.raises(InvalidArgument, match=message):
        teach(calibrator, replace(FORK, **change), [5])
    assert np.array_equal(scored(calibrator, FORK).scores, before)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([np.nan, 0.5, 0.5, 0.1, 0.5], "node 0 has score nan; it must be within 0..1"),
        ([0.5, 1.5, 0.5, 0.1, 0.5], "node 1 has score 1.5"),
        ([0.5, 0.5, 0.6, 0.1, 0.5], "node 2 has score 0.6.*, more than its parent"),
        ([0.5, 0.5], "scores has 2 entries, tokens has 5"),
    ],
)
def test_scores_that_cannot_be_sorted_are_refused(scores: list[float], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        merge([FORK, replace(FORK, scores=np.array(scores, np.float32))], 4)
    with pytest.raises(InvalidArgument, match="max_nodes is -1"):
        merge([FORK], -1)
