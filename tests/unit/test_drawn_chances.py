"""Retrieved tokens that the target draws with known noise: whose noise counts, what it says, and that it is right more often."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from datastore.draft_tree import DraftTree
from datastore.retriever import MAX_NODES
from serving.decoding.drafter import DraftRequest
from serving.decoding.row_contexts import RowContexts
from serving.decoding.sampler import Sampler
from serving.decoding.settings import SamplingSettings
from serving.draft_service.limits import MAX_BATCH, MAX_BATCH_NODES
from serving.drafters.ahead import Ahead
from serving.drafters.calibration.calibration import Calibration
from serving.drafters.calibration.calibrator import Prior
from serving.drafters.datastore import DatastoreDrafter
from serving.drafters.drawn_chances import BREADTH, drawn_chances, noise_of, with_noise
from serving.drafters.limits import Limits
from serving.drafters.prompt_lookup import PromptLookupDrafter
from serving.drafters.retrieved import NO_TOKENS, Behind, Retrieved, nodes_wanted
from tests.brute_force import BruteForceRetriever
from tests.drafters import tree
from tests.later import LaterBruteForce

VOCAB = 50
DRAWN = SamplingSettings(temperature=1.0, seed=3)
CPU = torch.device("cpu")


def request(size: int, settings: SamplingSettings = DRAWN, max_nodes: int = 64) -> DraftRequest:
    return DraftRequest(1, np.arange(size, dtype=np.int32) % VOCAB, max_nodes, settings=settings)


def drawn(sampler: Sampler, logits: torch.Tensor, step: DraftRequest, path: list[int]) -> int:
    contexts = RowContexts(step.tokens, 0, np.array([path], np.int64).reshape(1, -1), np.array([len(path)], np.int64))
    return int(sampler.draw(logits[None].clone(), contexts)[0])


def test_the_noise_is_that_of_the_draw_at_each_node() -> None:
    """Over a flat law the target draws the token with the most noise: behind the text, and behind drafted tokens."""
    sampler, flat = Sampler(DRAWN, VOCAB, CPU), torch.zeros(VOCAB)
    every = tree([7, *range(VOCAB)], [-1, *[0] * VOCAB])  # all tokens behind token 7
    below = tree(list(range(VOCAB)), [-1] * VOCAB)  # the same, as found behind the text with 7 at its end
    for size in range(1, 40):
        step = request(size)
        noise = noise_of(step, [every, below], [0, 1])
        expected = drawn(sampler, flat, step, [7])
        assert int(noise[1 : VOCAB + 1].argmax()) == expected
        assert int(noise[VOCAB + 1 :].argmax()) == expected


def test_more_noise_makes_a_token_likelier_and_matters_most_to_the_unsure_and_the_warm() -> None:
    noise, even = np.linspace(-2.0, 8.0, 30), np.full(30, 0.1)
    chances = drawn_chances(even, noise, 1.0)
    assert np.all(np.diff(chances) > 0)
    assert chances[0] < 0.1 < chances[-1]
    assert np.ptp(drawn_chances(even, noise, 0.2)) < np.ptp(chances)
    sure = drawn_chances(np.full(30, 0.98), noise, 1.0)
    assert np.log(sure[-1] / (1 - sure[-1]) / (sure[0] / (1 - sure[0]))) < np.log(chances[-1] / chances[0])


@pytest.mark.parametrize("temperature", [1.0, 10.0, 100.0])
def test_what_was_never_seen_is_not_exaggerated(temperature: float) -> None:
    """At temperature 10 a token of one in ten thousand once became certain, and a certain one impossible."""
    noise = np.linspace(-3.0, 12.0, 40)
    for chance in (0.0, 1e-4, 0.5, 0.9999, 1.0):
        found = drawn_chances(np.full(40, chance), noise, temperature)
        assert np.all(np.diff(found) > 0)
        assert np.all((found > 0) & (found < 1))
    assert drawn_chances(np.array([1e-4]), np.array([3.0]), temperature)[0] < 0.01
    assert drawn_chances(np.array([0.9999]), np.array([8.0]), temperature)[0] > 0.99


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
        known += int(with_noise(step, [found], [0])[0].scores.argmax()) == target
    assert known > 1.25 * plain


def test_a_chance_counts_behind_a_parent_that_is_hardly_likely() -> None:
    found = tree([4, 5], [-1, 0], [1e-7, 0.9e-7])
    [scored] = with_noise(request(5), [found], [0])
    behind = drawn_chances(np.array([1e-7, 0.9]), noise_of(request(5), [found], [0]), 1.0)
    assert scored.scores[1] / scored.scores[0] == pytest.approx(behind[1], rel=1e-3)


def test_sources_look_up_more_than_they_propose_where_noise_counts() -> None:
    text = np.random.default_rng(0).integers(0, 8, 300).tolist()
    store = Asked([text], VOCAB)
    for settings, wanted in ((DRAWN, 3 * BREADTH), (SamplingSettings(), 3)):
        step = DraftRequest(1, np.array(text[:100], np.int32), 3, settings=settings)
        for drafter in (DatastoreDrafter(store, VOCAB), PromptLookupDrafter(VOCAB)):
            trees = drafter.scored([step])[0]
            assert (max(map(len, trees)) > 3) == (wanted > 3)
            assert len(drafter.propose([step])[0]) == 3
        assert set(store.budgets) == {wanted}
        far = LaterBruteForce([text], VOCAB)
        ahead = Ahead(far, Limits(), lambda request, tree: float(len(tree)))
        [trees] = ahead.draft([step], [[step.tokens[-2:]]])
        assert len(trees[0]) == wanted
    many = [DraftRequest(number, np.array(text[:50], np.int32), 1024, settings=DRAWN) for number in range(100)]
    store.budgets.clear()
    DatastoreDrafter(store, VOCAB).propose(many)
    assert len(store.budgets) <= MAX_BATCH
    assert sum(store.budgets) <= MAX_BATCH_NODES


class Asked(BruteForceRetriever):
    """Remembers the ``budgets`` it was asked for since it was last cleared."""

    def draft_batch(self, contexts: Any, *limits: Any) -> list[DraftTree]:
        self.budgets = list(limits[-1])
        return super().draft_batch(contexts, *limits)


def test_scores_are_those_of_whole_paths_and_what_is_empty_stays_so() -> None:
    found = tree([4, 5, 6, 7], [-1, 0, 1, 0], [0.8, 0.4, 0.1, 0.2])
    empty, scored = with_noise(request(5), [DraftTree.empty(), found], [0, 2])
    chances = drawn_chances(np.array([0.8, 0.5, 0.25, 0.25]), noise_of(request(5), [found], [2]), 1.0)
    assert scored.scores == pytest.approx(
        [chances[0], chances[0] * chances[1], chances[:3].prod(), chances[0] * chances[3]], rel=1e-5
    )
    assert len(empty) == 0
    assert with_noise(request(5), [empty], [0]) == [empty]


@pytest.mark.parametrize(
    ("settings", "counts"),
    [
        (DRAWN, True),
        (SamplingSettings(), False),
        (SamplingSettings(temperature=1.0, verification="rejection"), False),
        (SamplingSettings(temperature=1.0, verification="typical"), False),
    ],
)
def test_noise_counts_where_the_target_draws_by_it(settings: SamplingSettings, counts: bool) -> None:
    retrieved = Retrieved(Calibration(), "source", Prior(0.0, 0.0, 1.0, 0.0, 0.0))
    scores = set()
    for size in range(3, 9):
        step = request(size, settings)
        retrieved.begin(step)
        [scored] = retrieved.scored(step, [Behind(NO_TOKENS, tree([1], [-1]))])
        scores.add(float(scored.scores[0]))
    assert (len(scores) > 1) == counts
    assert nodes_wanted(request(3, settings, 10)) == (10 * BREADTH if counts else 10)
    assert nodes_wanted(request(3, settings, 900)) == (MAX_NODES if counts else 900)
