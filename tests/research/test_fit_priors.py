"""Tests the fit of priors to recorded answers. The evidence equals the calibrator's, and the fit recovers known weights."""

from __future__ import annotations

import numpy as np
import pytest

from research.fit_priors import fit_prior, fit_source, halves_of, judge
from research.logistic_fit import fit_logistic, log_loss, probabilities
from research.prior_evidence import TERMS, Evidence, evidence_of, features_of, gather, join
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.drafters.calibration.calibrator import Calibrator, Prior
from suffolk.serving.decoding.drafters.calibration.confidence import BINS
from suffolk.serving.decoding.drafters.retrieval.datastore import DatastoreDrafter
from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.decoding.replay.recording import Recording
from tests.support.brute_force import BruteForceRetriever
from tests.support.drafters import scored, teach, tree

PRIOR = Prior(constant=-2.0, match=0.4, share=0.9, count=0.2, depth=-0.3)


def counted(tokens: list[int], parents: list[int], counts: list[int], match: int, match_count: int) -> DraftTree:
    made = tree(tokens, parents)
    return DraftTree(
        made.tokens, made.parents, made.scores, made.sources, np.array(counts, np.uint64), match, match_count
    )


def test_features_are_those_of_the_calibrator() -> None:
    """In a chain without siblings, each score is the product of the prior's probabilities along the path."""
    chain = counted([5, 6, 7], [-1, 0, 1], [40, 12, 12], 3, 90)
    odds = Evidence(features_of(chain), np.zeros(3, np.bool_), np.zeros(3)).log_odds(PRIOR)
    assert scored(Calibrator(PRIOR), chain).scores == pytest.approx(np.cumprod(probabilities(odds)), rel=1e-5)


def test_evidence_is_what_the_calibrator_learns_from() -> None:
    found = counted([5, 6, 5, 7, 8, 9], [-1, -1, -1, 0, 0, 1], [9, 5, 2, 4, 4, 5], 2, 20)
    for tokens in ([5, 8, 1], [6, 9], [4], [5]):
        evidence = evidence_of(found, np.array(tokens, np.int32))
        calibrator = Calibrator(PRIOR)
        teach(calibrator, found, tokens)
        _, taken, seen = calibrator.reliability.state().reshape(3, BINS).sum(1)
        assert evidence.taken.sum() == taken
        assert evidence.features.shape == (seen, len(TERMS))
    assert evidence_of(found, np.array([5, 8, 1], np.int32)).taken.tolist() == [True, False, False, False, True]


def test_the_fit_finds_the_weights_that_made_the_data() -> None:
    rng = np.random.default_rng(0)
    features = np.column_stack([np.ones(40_000), rng.normal(size=(40_000, 2))])
    weights = np.array([-1.5, 0.8, -0.4])
    taken = rng.random(len(features)) < probabilities(features @ weights)
    fitted = fit_logistic(features, taken, 1.0)
    assert fitted == pytest.approx(weights, abs=0.06)
    chances = probabilities(features @ fitted)
    assert judge(chances, taken)["calibration_error"] < 0.01
    assert log_loss(chances, taken) < log_loss(np.full(len(taken), taken.mean()), taken)


def test_a_fit_to_constant_outcomes_is_finite() -> None:
    features = np.column_stack([np.ones(100), np.zeros(100)])
    fitted = fit_logistic(features, np.ones(100, np.bool_), 1.0)
    assert fitted[1] == pytest.approx(0.0)
    assert 5 < fitted[0] < 60


def test_likely_nodes_are_judged_separately() -> None:
    chances, taken = np.array([0.05, 0.15, 0.95, 0.95]), np.array([False, False, True, True])
    found = judge(chances, taken)
    assert found["calibration_error"] == pytest.approx((0.05 + 0.15 + 2 * 0.05) / 4)
    assert found["of_likely"] == pytest.approx((0.15 + 2 * 0.05) / 3)
    assert log_loss(np.array([0.5]), np.array([True])) == pytest.approx(np.log(2))


def recording(prompt: list[int], generated: list[int], group: str) -> Recording:
    settings = SamplingSettings(len(generated))
    return Recording(np.array(prompt, np.int32), np.array(generated, np.int32), settings, 60, group=group)


def test_evidence_is_grouped_by_source_and_answer_and_improves_the_prior() -> None:
    rng = np.random.default_rng(1)
    phrases = [rng.integers(0, 60, 12).tolist() for _ in range(8)]
    texts = [[token for at in rng.integers(0, 8, 6) for token in phrases[at]] for _ in range(8)]
    recordings = [recording(text[:30], text[30:], f"g{number % 2}") for number, text in enumerate(texts)]
    store = BruteForceRetriever([phrases[0] + phrases[1], phrases[2]], 60)
    found = gather(recordings, [PromptLookupDrafter(60), DatastoreDrafter(store, 60)], 16)
    assert {name: len(parts) for name, parts in found.items()} == {"prompt-lookup": 8, "datastore": 8}
    for parts in found.values():
        together = join(parts)
        assert together.taken.any()
        assert not together.taken.all()
        fitted, given = (probabilities(together.log_odds(prior)) for prior in (fit_prior(together), PRIOR))
        assert log_loss(fitted, together.taken) < log_loss(given, together.taken)
        report = fit_source(PRIOR, parts, [each.group for each in recordings], halves_of(recordings), 1.0)
        assert set(report) >= {"nodes", "all", "prior"}
        assert report["all"]["nodes"] == report["nodes"] == len(together.taken)
        assert set(report["prior"]) == set(TERMS)


def test_answers_to_one_prompt_are_in_one_half() -> None:
    recordings = [recording(prompt, [1, 2], "") for prompt in ([1], [2], [3], [2], [1], [3])]
    assert halves_of(recordings) == [0, 1, 0, 1, 0, 0]


def test_a_fit_without_evidence_is_rejected() -> None:
    with pytest.raises(InvalidArgument, match="no evidence"):
        fit_prior(join([]))
