"""The fitted pooling equals that of the merge, and the fit gives accurate sources more weight."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch

from research.fit_merge import MOST, SOURCES, Pooling, fit, loss, pack
from research.merge_evidence import TokenEvidence, collect_evidence, some_sources
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.drafters.hybrid.merge import merge
from suffolk.serving.drafters.registry import source_bits
from tests.support.drafters import tree
from tests.support.drafting_oracle import NO_CHILD, OTHER_WEIGHT, POOL_WEIGHTS


def tree_of(source: int, chances: dict[int, float]) -> DraftTree:
    flat = tree(list(chances), [-1] * len(chances), list(chances.values()))
    return DraftTree(flat.tokens, flat.parents, flat.scores, np.full(len(chances), source, np.uint32))


def test_the_fitted_pooling_equals_the_merge() -> None:
    pooling = Pooling()
    with torch.no_grad():
        pooling.no_child.fill_(NO_CHILD)
        for place, source in enumerate(SOURCES):
            weight, unlisted = POOL_WEIGHTS.get(int(source), OTHER_WEIGHT)
            pooling.log_weight[place], pooling.unlisted[place] = math.log(weight), unlisted
    rng = random.Random(0)
    for _ in range(50):
        sources = rng.sample([1, 2, 4, 16, 32], rng.randint(2, 4))
        probs = {source: {rng.randrange(9): rng.random() / 4 for _ in range(rng.randint(1, 4))} for source in sources}
        merged = merge([tree_of(source, chances) for source, chances in probs.items()], 99)
        expected = dict(zip(merged.tokens.tolist(), merged.scores.tolist(), strict=True))
        for token in expected:
            chances, came = pack([TokenEvidence(probs, token)])
            found = pooling(chances).softmax(1)[0, came[0]].detach()
            assert float(found) == pytest.approx(expected[token], rel=1e-3)


def test_evidence_ends_at_the_first_token_that_no_source_proposes() -> None:
    deep = tree([5, 6, 7], [-1, 0, 1], [0.8, 0.4, 0.1])
    wide = tree_of(2, {5: 0.5, 9: 0.25})
    found = collect_evidence([deep, wide], np.array([5, 6, 3, 1], np.int32))
    assert [(each.token, set(each.by_source)) for each in found] == [(5, {1, 2}), (6, {1}), (3, {1})]
    assert found[0].by_source == {1: {5: pytest.approx(0.8)}, 2: {5: 0.5, 9: 0.25}}
    assert found[1].by_source == {1: {6: pytest.approx(0.5)}}
    assert collect_evidence([wide], np.array([4], np.int32)) == [TokenEvidence({2: {5: 0.5, 9: 0.25}}, 4)]
    assert collect_evidence([], np.array([4], np.int32)) == []


def test_tokens_beyond_the_likeliest_count_as_not_proposed() -> None:
    many = {token: 1 / (token + 2) for token in range(MOST + 5)}
    chances, came = pack(
        [TokenEvidence({1: many}, 3), TokenEvidence({1: many}, MOST + 1), TokenEvidence({1: many}, 10_000)]
    )
    assert came.tolist() == [3, MOST, MOST]
    assert float(chances[0, 3, SOURCES.index(source_bits("datastore"))]) == pytest.approx(0.2)


def test_the_fit_gives_accurate_sources_more_weight() -> None:
    rng = random.Random(1)
    evidence = []
    for _ in range(400):
        token, other = rng.sample(range(50), 2)
        right = rng.random() < 0.6
        evidence.append(TokenEvidence({32: {token: 0.6}, 1: {other: 0.6}}, token if right else 51))
    pooling = fit(some_sources(evidence))
    weights = {source: float(pooling.log_weight[place].detach()) for place, source in enumerate(SOURCES)}
    assert weights[source_bits("eagle")] > weights[source_bits("datastore")] + 0.5
    assert loss(pooling, evidence) < loss(Pooling(), evidence)
    with pytest.raises(InvalidArgument, match="two sources never proposed"):
        fit([each for each in some_sources(evidence) if len(each.by_source) == 1])
