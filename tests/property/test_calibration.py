"""The calibrator in C++ equals the oracle: the same evidence gives the same scores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.calibration.calibrator import Calibrator
from suffolk.serving.decoding.drafters.calibration.confidence import BINS, Reliability
from suffolk.serving.decoding.drafters.retrieval.datastore import PRIOR
from tests.support.drafters import scored, teach
from tests.support.drafting_oracle import OracleCalibrator


@st.composite
def counted_trees(draw: st.DrawFn) -> DraftTree:
    """A tree from a source. Siblings may repeat, and counts may be 0 or exceed their parent's."""
    tokens = draw(st.lists(st.integers(0, 3), max_size=14))
    parents = [draw(st.integers(-1, node - 1)) for node in range(len(tokens))]
    numbers = st.one_of(st.integers(0, 12), st.sampled_from([63, 64, 65, 2**63, 2**64 - 1]))
    counts = draw(st.one_of(st.none(), st.lists(numbers, min_size=len(tokens), max_size=len(tokens))))
    return DraftTree(
        np.array(tokens, np.int32),
        np.array(parents, np.int32),
        np.zeros(len(tokens), np.float32),
        np.zeros(len(tokens), np.uint32),
        None if counts is None else np.array(counts, np.uint64),
        draw(st.integers(0, 20)),
        draw(numbers),
    )


@given(st.lists(st.tuples(counted_trees(), st.lists(st.integers(0, 3), max_size=5)), max_size=8), counted_trees())
def test_scores_are_the_oracles_after_any_evidence(rounds: list[tuple[DraftTree, list[int]]], last: DraftTree) -> None:
    calibrator, oracle, expected = Calibrator(PRIOR, 0.9), OracleCalibrator(PRIOR, 0.9), Reliability(0.9)
    for tree, tokens in rounds:
        teach(calibrator, tree, tokens)
        judged = oracle.learn(tree, tokens)
        expected.add(np.array([chance for chance, _ in judged]), np.array([taken for _, taken in judged]))
    kept = Calibrator(PRIOR, 0.9)
    kept.restore(calibrator.state())
    for tree in (*(tree for tree, _ in rounds), last):
        scores = scored(calibrator, tree).scores
        assert scores.tolist() == scored(kept, tree).scores.tolist()
        assert scores.tolist() == pytest.approx(oracle.score(tree), abs=1e-6)
        above = np.append(scores, np.float32(1))[tree.parents]
        assert np.all((scores >= 0) & (scores <= above))
    predicted, expected_sums = (each.state().reshape(3, BINS).sum(1) for each in (calibrator.reliability, expected))
    assert predicted.tolist() == pytest.approx(expected_sums.tolist(), abs=1e-5)
