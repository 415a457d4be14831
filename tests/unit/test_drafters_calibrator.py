"""The calibrator: what counts as evidence, and that it learns what is true."""

from __future__ import annotations

import numpy as np
import pytest

from datastore.draft_tree import DraftTree, Source
from serving.drafters.calibrator import Calibrator, evidence
from serving.drafters.prompt_lookup import PRIOR
from serving.drafters.ranking import ranked


def counted(tokens: list[int], parents: list[int], counts: list[int], length: int, count: int) -> DraftTree:
    size = len(tokens)
    return DraftTree(
        np.array(tokens, np.int32),
        np.array(parents, np.int32),
        np.zeros(size, np.float32),
        np.zeros(size, np.uint8),
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
    found = evidence(FORK, np.array(tokens, np.int32))
    assert [each.tolist() for each in found] == [tried, taken]


def test_no_child_is_likelier_than_its_parent_nor_all_siblings_than_certain() -> None:
    scores = Calibrator(PRIOR).score(FORK)
    assert np.all((scores > 0) & (scores <= 1))
    assert np.all(scores[2:] <= scores[FORK.parents[2:]])
    wide = counted(list(range(40)), [-1] * 40, [1] * 40, 16, 40)
    assert Calibrator(PRIOR).score(wide).sum() <= 1.0 + 1e-6


def test_longer_matches_and_larger_shares_promise_more() -> None:
    def chance(length: int, share: int) -> float:
        return float(Calibrator(PRIOR).score(counted([1], [-1], [share], length, 10))[0])

    assert chance(1, 5) < chance(4, 5) < chance(16, 5)
    assert chance(4, 1) < chance(4, 5) < chance(4, 10)


@pytest.mark.parametrize("truth", [0.05, 0.4, 0.9])
def test_it_learns_how_often_a_kind_of_node_is_taken(truth: float) -> None:
    rng = np.random.default_rng(0)
    calibrator = Calibrator(PRIOR)
    kind = counted([1, 2], [-1, 0], [8, 8], 4, 10)
    for _ in range(1500):
        calibrator.learn(kind, np.array([1 if rng.random() < truth else 0, 2], np.int32))
    scores = calibrator.score(kind)
    assert scores[0] == pytest.approx(truth, abs=0.08)
    assert scores[1] / scores[0] > 0.85  # the second was taken whenever the first was


def test_it_follows_a_change() -> None:
    calibrator = Calibrator(PRIOR, decay=0.98)
    kind = counted([1], [-1], [8], 4, 10)
    for token in [1] * 300 + [0] * 300:
        calibrator.learn(kind, np.array([token], np.int32))
    assert calibrator.score(kind)[0] < 0.25


def test_an_empty_tree_teaches_and_scores_nothing() -> None:
    calibrator = Calibrator(PRIOR)
    calibrator.learn(DraftTree.empty(), np.array([1], np.int32))
    assert len(calibrator.score(DraftTree.empty())) == 0


def test_ranking_sorts_cuts_and_keeps_the_tree() -> None:
    scores = np.array([0.5, 0.9, 0.5, 0.1, 0.5], np.float32)
    best = ranked(FORK, scores, Source.PROMPT_LOOKUP, 4)
    assert best.tokens.tolist() == [6, 5, 7, 9]
    assert best.parents.tolist() == [-1, -1, 1, 2]
    assert best.scores.tolist() == pytest.approx([0.9, 0.5, 0.5, 0.5])
    assert best.sources.tolist() == [2] * 4
    assert best.counts is not None
    assert best.counts.tolist() == [3, 6, 4, 4]
