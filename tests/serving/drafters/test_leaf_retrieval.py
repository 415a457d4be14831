"""Retrieval behind drafted tokens."""

from __future__ import annotations

import numpy as np
import pytest

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.drafters.calibration.calibration import Calibration
from suffolk.serving.drafters.hybrid.accepted_length import path_to
from suffolk.serving.drafters.hybrid.drafter import HybridDrafter
from suffolk.serving.drafters.hybrid.leaf_retrieval import best_leaves, graft
from suffolk.serving.drafters.registry import source_bits
from suffolk.serving.drafters.retrieval.datastore import PRIOR, DatastoreDrafter
from suffolk.serving.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.drafters.retrieval.retrieval_scorer import RetrievalScorer, RetrievedTree
from suffolk.serving.engine.loop.drafter import DraftRequest
from suffolk.serving.engine.sampling.settings import SamplingSettings
from tests.support.brute_force import BruteForceRetriever
from tests.support.drafters import MadeUpDrafter, tree
from tests.support.tiny_models import VOCAB


def test_the_likeliest_leaves_are_asked_about() -> None:
    found = tree([1, 2, 3, 4, 5, 6, 7], [-1, 0, 0, 1, -1, -1, -1], [0.9, 0.8, 0.05, 0.7, 0.04, 0.3, 0.2])
    assert best_leaves(found).tolist() == [3, 5, 6, 2]
    assert path_to(found, 3).tolist() == [0, 1, 3]
    assert not len(best_leaves(DraftTree.empty()))


def test_a_graft_is_the_path_with_the_scores_of_whole_paths_behind_it() -> None:
    found = tree([1, 2, 3], [-1, 0, 0], [0.8, 0.5, 0.2])
    grown = graft(found, path_to(found, 1), tree([7, 8], [-1, 0], [0.6, 0.5]))
    assert grown.tokens.tolist() == [1, 2, 7, 8]
    assert grown.parents.tolist() == [-1, 0, 1, 2]
    assert grown.scores.tolist() == pytest.approx([0.8, 0.5, 0.3, 0.25])
    assert grown.sources.tolist()[:2] == [0, 0]
    assert grown.validate(10)


def test_the_datastore_goes_on_where_a_network_ends() -> None:
    """The network guesses a token that the text does not hold; the datastore knows what follows it, and nothing of the text."""
    store = DatastoreDrafter(BruteForceRetriever([[50, 51, 52, 53]], VOCAB), VOCAB)
    network = MadeUpDrafter(lambda request: tree([50], [-1], [0.9]))
    drafter = HybridDrafter([store, PromptLookupDrafter(VOCAB)], [network])
    request = DraftRequest(1, np.array([1, 2, 3, 4], np.int32), 16)
    [found] = drafter.propose([request])
    assert found.tokens[:4].tolist() == [50, 51, 52, 53]
    assert found.parents[:4].tolist() == [-1, 0, 1, 2]
    assert found.sources[1:4].tolist() == [source_bits("datastore")] * 3
    assert (found.scores[1:] < found.scores[0]).all()
    before = found.scores[1]
    for _ in range(60):
        drafter.observe(1, np.array([50, 51, 52, 53, 9], np.int32))
        [found] = drafter.propose([request])
    assert found.scores[1] > before  # the source learns from what followed
    assert drafter.stats()["grafts: asked"] > 50
    drafter.release(1)
    drafter.close()


def test_a_draft_behind_another_path_tells_nothing() -> None:
    request = DraftRequest(1, np.array([1], np.int32), 8)
    retrieved = RetrievalScorer(Calibration(), "a source", PRIOR)
    found = BruteForceRetriever([[1, 2, 3]], VOCAB).draft_batch([np.array([1], np.int32)], 16, 1, 4, [8])[0]
    first: list[float] = []
    for followed in ([8, 2, 3], [7, 2, 3], [7, 2, 3]):
        retrieved.begin(request)
        first.append(float(retrieved.score(request, [RetrievedTree(np.array([7], np.int32), found)])[0].scores[0]))
        retrieved.observe(1, np.array(followed, np.int32))
    assert first[0] == first[1] < first[2]


def test_what_greedy_requests_teach_is_not_believed_of_drawn_ones() -> None:
    found = BruteForceRetriever([[1, 2, 3]], VOCAB).draft_batch([np.array([1], np.int32)], 16, 1, 4, [8])[0]
    retrieved = RetrievalScorer(Calibration(), "a source", PRIOR)
    greedy, drawn = (
        DraftRequest(number, np.array([1], np.int32), 8, settings=SamplingSettings(9, number)) for number in (0, 1)
    )
    before = retrieved.expected_tokens(drawn, found)
    for _ in range(50):
        retrieved.begin(greedy)
        retrieved.score(greedy, [RetrievedTree(np.array([], np.int32), found)])
        retrieved.observe(0, np.array([2, 3], np.int32))
    assert retrieved.expected_tokens(greedy, found) > before == retrieved.expected_tokens(drawn, found)
