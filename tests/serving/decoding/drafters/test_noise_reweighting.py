"""Tests the reweighting of retrieved tokens by the target's known noise: the noise, the new scores, and their accuracy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import torch

from suffolk.datastore import _native
from suffolk.datastore.context_query import ContextQuery
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.limits import MAX_BATCH, MAX_BATCH_NODES
from suffolk.serving.decoding.drafters.calibration.calibration import Calibration
from suffolk.serving.decoding.drafters.calibration.calibrator import Prior
from suffolk.serving.decoding.drafters.calibration.rescale import BREADTH, ENOUGH, conditional_probs
from suffolk.serving.decoding.drafters.retrieval.datastore import DatastoreDrafter
from suffolk.serving.decoding.drafters.retrieval.limits import Limits
from suffolk.serving.decoding.drafters.retrieval.prefetch import DraftPrefetcher
from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.drafters.retrieval.retrieval_scorer import (
    RetrievalScorer,
    nodes_wanted,
)
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest
from suffolk.serving.decoding.engine.model.row_contexts import RowContexts
from suffolk.serving.decoding.engine.sampling.sampler import Sampler
from suffolk.serving.decoding.engine.sampling.seeded_noise import SeededNoise
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.brute_force import BruteForceRetriever
from tests.support.drafters import tree, with_noise
from tests.support.later import LaterBruteForce

VOCAB = 50
DRAWN = SamplingSettings(temperature=1.0, seed=3)
CPU = torch.device("cpu")


def request(size: int, settings: SamplingSettings = DRAWN, max_nodes: int = 64) -> DraftRequest:
    return DraftRequest(1, np.arange(size, dtype=np.int32) % VOCAB, max_nodes, settings=settings)


def drawn(sampler: Sampler, logits: torch.Tensor, step: DraftRequest, path: list[int]) -> int:
    contexts = RowContexts(step.tokens, 0, np.array([path], np.int64).reshape(1, -1), np.array([len(path)], np.int64))
    return int(sampler.sample(logits[None].clone(), contexts)[0])


def chances(found: DraftTree, step: DraftRequest, above: int = 0) -> npt.NDArray[np.float64]:
    """Return the probability of each node given its parent and its noise."""
    return conditional_probs(with_noise(step, found, above))


def even(chance: float) -> DraftTree:
    """Return a tree of all tokens after the text, with equal probabilities."""
    return tree(list(range(VOCAB)), [-1] * VOCAB, [chance] * VOCAB)


def by_noise(step: DraftRequest) -> npt.NDArray[np.int64]:
    """Return all tokens in order of increasing noise after the text."""
    noise = SeededNoise(step.settings.seed, VOCAB, CPU).rows(len(step.tokens), 1)[0]
    return noise.argsort().numpy()


def test_the_noise_is_that_of_the_draw_at_each_node() -> None:
    """From a uniform distribution, the target samples the token with the most noise.

    This holds after the text and after drafted tokens.
    """
    sampler, flat = Sampler(DRAWN, VOCAB, CPU), torch.zeros(VOCAB)
    every = tree([7, *range(VOCAB)], [-1, *[0] * VOCAB], [0.5, *[0.1] * VOCAB])  # all tokens behind token 7
    for size in range(1, 40):
        step = request(size)
        expected = drawn(sampler, flat, step, [7])
        assert int(chances(every, step)[1:].argmax()) == expected
        assert int(chances(even(0.1), step, above=1).argmax()) == expected  # as found behind the text with 7 at its end


def test_more_noise_makes_a_token_likelier_and_matters_most_to_the_unsure_and_the_warm() -> None:
    step = request(9)
    order = by_noise(step)
    warm = chances(even(0.1), step)[order]
    assert np.all(np.diff(warm) > 0)
    assert warm[0] < 0.1 < warm[-1]
    assert np.ptp(chances(even(0.1), request(9, SamplingSettings(temperature=0.2, seed=3)))) < np.ptp(warm)
    sure = chances(even(0.98), step)[order]
    assert np.log(sure[-1] / (1 - sure[-1]) / (sure[0] / (1 - sure[0]))) < np.log(warm[-1] / warm[0])


@pytest.mark.parametrize("temperature", [1.0, 10.0, 100.0])
def test_what_was_never_seen_is_not_exaggerated(temperature: float) -> None:
    """Regression: at temperature 10, a token of probability 1e-4 used to become certain, and a certain token impossible."""
    for size in range(1, 60):
        step = request(size, SamplingSettings(temperature=temperature, seed=3))
        order = by_noise(step)
        for chance in (0.0, 1e-4, 0.5, 0.9999, 1.0):
            found = chances(even(chance), step)[order]
            assert np.all(np.diff(found) >= 0)
            assert 0 < found[0] <= found[-1] < 1
        assert chances(even(1e-4), step).max() < 0.5
        assert chances(even(0.9999), step).min() > 0.95


def test_the_best_node_is_drawn_more_often() -> None:
    rng = np.random.default_rng(0)
    sampler = Sampler(DRAWN, VOCAB, CPU)
    plain = known = 0
    for size in range(1, 400):
        law = rng.dirichlet(np.full(VOCAB, 0.1))
        found = tree(list(range(VOCAB)), [-1] * VOCAB, law.tolist())
        step = request(size)
        target = drawn(sampler, torch.from_numpy(np.log(law + 1e-12)), step, [])
        plain += int(found.scores.argmax()) == target
        known += int(with_noise(step, found, 0).scores.argmax()) == target
    assert known > 1.25 * plain


def test_a_chance_counts_behind_a_parent_that_is_hardly_likely() -> None:
    found, likely = tree([4, 5], [-1, 0], [1e-7, 0.9e-7]), tree([4, 5], [-1, 0], [1.0, 0.9])
    assert chances(found, request(5))[1] == pytest.approx(chances(likely, request(5))[1], rel=1e-3)


def test_sources_look_up_more_than_they_propose_where_noise_counts() -> None:
    text = np.random.default_rng(0).integers(0, 8, 300).tolist()
    store = Asked([text], VOCAB)
    for settings, wanted in ((DRAWN, 3 * BREADTH), (SamplingSettings(), 3)):
        step = DraftRequest(1, np.array(text[:100], np.int32), 3, settings=settings)
        for drafter in (DatastoreDrafter(store, VOCAB), PromptLookupDrafter(VOCAB)):
            trees = drafter.draft([step])[0]
            assert (max(map(len, trees)) > 3) == (wanted > 3)
            assert len(drafter.propose([step])[0]) == 3
        assert set(store.budgets) == {wanted}
        far = LaterBruteForce([text], VOCAB)
        prefetcher = DraftPrefetcher(far, Limits())
        prefetcher.prefetch([replace(step, tokens=step.tokens[:-1])], [DraftTree.empty()], [2])
        [trees] = prefetcher.draft([step], [[step.tokens[-2:]]])
        assert len(trees[0]) == wanted
    many = [DraftRequest(number, np.array(text[:50], np.int32), 1024, settings=DRAWN) for number in range(100)]
    store.budgets.clear()
    DatastoreDrafter(store, VOCAB).propose(many)
    assert len(store.budgets) <= MAX_BATCH
    assert sum(store.budgets) <= MAX_BATCH_NODES


class Asked(BruteForceRetriever):
    """Records the requested ``budgets`` since the last reset."""

    def find_drafts(self, query: ContextQuery) -> list[DraftTree]:
        self.budgets = query.budgets
        return super().find_drafts(query)


def test_what_is_no_tree_is_refused_and_what_is_empty_stays_so() -> None:
    assert len(with_noise(request(5), DraftTree.empty(), 0)) == 0
    for parents, scores in (([-1, 1], [0.5, 0.5]), ([-1, 0], [0.5, 0.6]), ([-1, 0], [0.5, np.nan])):
        with pytest.raises(InvalidArgument, match="draft tree: node 1 has"):
            with_noise(request(5), tree([4, 5], parents, scores), 0)
    with pytest.raises(InvalidArgument, match="temperature is 0"):
        with_noise(request(5, SamplingSettings()), tree([4], [-1], [0.5]), 0)


@pytest.mark.parametrize(
    ("settings", "counts"),
    [
        (DRAWN, True),
        (SamplingSettings(), False),
        (SamplingSettings(temperature=1.0, verification="rejection"), False),
        (SamplingSettings(temperature=1.0, verification="typical"), False),
        (SamplingSettings(temperature=1.0, top_k=1), False),  # one token remains for any noise
    ],
)
def test_noise_counts_where_the_target_draws_by_it(settings: SamplingSettings, counts: bool) -> None:
    retrieved = RetrievalScorer(Calibration(), "source", Prior(0.0, 0.0, 1.0, 0.0, 0.0))
    scores = set()
    for size in range(3, 9):
        step = request(size, settings)
        retrieved.begin([step])
        scored = retrieved.score([step], _native.Drafts([[tree([1], [-1])]]))
        scores.add(float(scored.trees[0].scores[0]))
    assert (len(scores) > 1) == counts
    assert nodes_wanted(request(3, settings, 10)) == (10 * BREADTH if counts else 10)
    assert nodes_wanted(request(3, settings, 40)) == (ENOUGH if counts else 40)
    assert nodes_wanted(request(3, settings, 900)) == 900
