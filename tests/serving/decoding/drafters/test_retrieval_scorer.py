"""Tests how the scores of retrieved trees are learned."""

from __future__ import annotations

import numpy as np

from suffolk.datastore import _native
from suffolk.serving.decoding.drafters.calibration.calibration import Calibration
from suffolk.serving.decoding.drafters.retrieval.datastore import PRIOR
from suffolk.serving.decoding.drafters.retrieval.retrieval_scorer import RetrievalScorer
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.brute_force import BruteForceRetriever
from tests.support.tiny_models import VOCAB


def test_a_draft_behind_another_path_tells_nothing() -> None:
    request = DraftRequest(1, np.array([1], np.int32), 8)
    retrieved = RetrievalScorer(Calibration(), "a source", PRIOR)
    found = BruteForceRetriever([[1, 2, 3]], VOCAB).draft_batch([np.array([1], np.int32)], 16, 1, 4, [8])[0]
    first: list[float] = []
    for followed in ([8, 2, 3], [7, 2, 3], [7, 2, 3]):
        retrieved.begin([request])
        scored = retrieved.score([request], _native.Drafts([[found]]), [np.array([7], np.int32)])
        first.append(float(scored.trees[0].scores[0]))
        retrieved.observe({1: np.array(followed, np.int32)})
    assert first[0] == first[1] < first[2]


def test_what_greedy_requests_teach_is_not_believed_of_drawn_ones() -> None:
    found = BruteForceRetriever([[1, 2, 3]], VOCAB).draft_batch([np.array([1], np.int32)], 16, 1, 4, [8])[0]
    retrieved = RetrievalScorer(Calibration(), "a source", PRIOR)
    greedy, drawn = (
        DraftRequest(number, np.array([1], np.int32), 8, settings=SamplingSettings(9, number)) for number in (0, 1)
    )

    def expected(request: DraftRequest) -> float:
        retrieved.begin([request])
        return float(retrieved.score([request], _native.Drafts([[found]])).trees[0].scores.sum())

    before = expected(drawn)
    for _ in range(50):
        expected(greedy)
        retrieved.observe({0: np.array([2, 3], np.int32)})
    assert expected(greedy) > before == expected(drawn)
