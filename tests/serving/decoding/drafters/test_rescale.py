"""Probabilities of siblings sum to at most 1."""

import numpy as np
import pytest

from suffolk.serving.decoding.drafters.calibration.rescale import conditional_probs, normalize_siblings
from tests.support.drafters import tree


def test_siblings_that_promise_more_than_one_are_brought_down_to_it_in_proportion() -> None:
    """Regression: eight certain but wrong roots used to be treated as certain, each of them."""
    found = normalize_siblings(tree([1, 2, 3, 4], [-1, -1, 0, 0], [0.9, 0.9, 0.9, 0.3]))
    assert found.tokens.tolist() == [1, 2, 3, 4]
    assert conditional_probs(found) == pytest.approx([0.5, 0.5, 0.75, 0.25])
    assert np.all(found.scores[2:] <= found.scores[0])


def test_a_tree_that_promises_no_more_stays_as_it_is() -> None:
    given = tree([1, 2, 3], [-1, -1, 0], [0.6, 0.4, 0.6])
    assert normalize_siblings(given) is given
    assert not len(normalize_siblings(tree([], [], [])))
