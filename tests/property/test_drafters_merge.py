"""The merge of trees gives a trie with parents first, unique siblings and falling scores.

Scores under known noise equal an oracle.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.retrieval.retrieval_source import merge
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest
from suffolk.serving.decoding.engine.sampling.settings import MAX_SEED, SamplingSettings
from tests.support.drafters import with_noise
from tests.support.drafting_oracle import Path, drawn_scores, nodes
from tests.support.drafting_oracle import merge as expected_merge


@st.composite
def scored_trees(draw: st.DrawFn) -> DraftTree:
    """A tree with the scores of a drafter.

    No child has a higher score than its parent, and parents come first. The order is otherwise free, and siblings may
    repeat.
    """
    source = draw(st.sampled_from([1, 2, 4, 16, 32, 128, 1 << 20, 1 << 31]))
    rows: dict[Path, int] = {}
    parents: list[int] = []
    tokens: list[int] = []
    scores: list[float] = []
    for path in draw(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=5).map(tuple), max_size=12)):
        twice = draw(st.booleans())
        for depth in range(1, len(path) + 1):
            if path[:depth] in rows and not (twice and depth == len(path)):
                continue
            parents.append(rows[path[: depth - 1]] if depth > 1 else -1)
            above = scores[parents[-1]] if depth > 1 else 1.0
            rows[path[:depth]] = len(tokens)
            tokens.append(path[depth - 1])
            scores.append(float(np.float32(above * draw(st.sampled_from([0.0, 0.25, 0.5, 0.8, 1.0])))))
    return DraftTree(
        np.array(tokens, np.int32),
        np.array(parents, np.int32),
        np.array(scores, np.float32),
        np.full(len(tokens), source, np.uint32),
    )


@given(st.lists(scored_trees(), max_size=4), st.integers(0, 30))
def test_the_merge_is_the_best_part_of_the_union(trees: list[DraftTree], max_nodes: int) -> None:
    merged = merge(trees, max_nodes).validate(5)
    expected = expected_merge(trees, 1000)
    known = {path: score for path, score, _ in expected}
    assert [score for _, score, _ in nodes(merged)] == pytest.approx(
        [score for _, score, _ in expected[:max_nodes]], abs=1e-6
    )
    for path, score, marks in nodes(merged):
        assert score == pytest.approx(known[path], abs=1e-6)
        assert marks == next(each for other, _, each in expected if other == path)
    assert np.all(np.diff(merged.scores) <= 0)


@given(scored_trees(), st.integers(0, 30))
def test_a_source_that_says_it_twice_says_no_more(tree: DraftTree, max_nodes: int) -> None:
    assert nodes(merge([tree, tree], max_nodes)) == nodes(merge([tree], max_nodes))


@given(
    scored_trees(),
    st.integers(1, 100_000),
    st.integers(0, 9),
    st.integers(0, MAX_SEED),
    st.floats(0.01, 100.0),
)
def test_known_noise_changes_scores_as_it_should(
    tree: DraftTree, size: int, above: int, seed: int, temperature: float
) -> None:
    settings = SamplingSettings(temperature=temperature, seed=seed)
    scored = with_noise(DraftRequest(1, np.zeros(size, np.int32), 64, settings=settings), tree, above)
    assert scored.scores.tolist() == pytest.approx(drawn_scores(tree, size + above, seed, temperature), rel=1e-5)
    assert scored.tokens.tolist() == tree.tokens.tolist()
    assert scored.parents.tolist() == tree.parents.tolist()


def chain(tokens: list[int], scores: list[float], mark: int) -> DraftTree:
    size = len(tokens)
    return DraftTree(
        np.array(tokens, np.int32),
        np.arange(-1, size - 1, dtype=np.int32),
        np.array(scores, np.float32),
        np.full(size, mark, np.uint32),
    )


def scores(*trees: DraftTree) -> dict[Path, float]:
    return {path: score for path, score, _ in nodes(merge(trees, 99))}


def test_the_highest_estimate_counts_and_all_sources_are_named() -> None:
    one, other = chain([7], [0.5], 2), chain([7], [0.4], 32)
    assert nodes(merge([one, other], 9)) == [((7,), 0.5, 34)]


def test_estimates_of_siblings_are_scaled_down_if_their_sum_exceeds_one() -> None:
    one, other = chain([7], [0.5], 2), chain([8], [0.75], 32)
    assert scores(one, other) == pytest.approx({(7,): 0.4, (8,): 0.6})


def test_a_source_that_expects_nothing_of_its_own_nodes_does_not_lower_others() -> None:
    """Calibration gives the nodes of a useless source low probabilities."""
    useless = DraftTree(
        np.arange(20, 40, dtype=np.int32),
        np.full(20, -1, np.int32),
        np.full(20, 1e-6, np.float32),
        np.full(20, 4, np.uint32),
    )
    assert scores(chain([7], [0.6], 2), useless)[(7,)] == pytest.approx(0.6)


def test_a_source_is_believed_behind_a_node_that_another_one_thinks_likelier() -> None:
    """The source gives the child 0.8 times the score of the parent.

    This ratio is used, although another source scores the parent higher.
    """
    sure, deep = chain([1], [0.9], 1), chain([1, 2], [0.0001, 0.00008], 2)
    both = scores(sure, deep)
    assert both[(1, 2)] / both[(1,)] == pytest.approx(0.8, abs=1e-3)


@given(st.lists(scored_trees(), max_size=3), st.data())
def test_columns_may_be_views(trees: list[DraftTree], data: st.DataObject) -> None:
    step = data.draw(st.sampled_from([-1, 2]))

    def spread(column: np.ndarray) -> np.ndarray:
        return np.repeat(column, 2)[::2] if step == 2 else column[::-1].copy()[::-1]

    views = [DraftTree(*(spread(each) for each in (t.tokens, t.parents, t.scores, t.sources))) for t in trees]
    assert nodes(merge(views, 9)) == nodes(merge(trees, 9))
