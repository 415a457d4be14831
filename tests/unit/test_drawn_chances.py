"""Retrieved tokens that the target draws with known noise: whose noise counts, what it says, and that it is right more often."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from datastore.draft_tree import DraftTree
from datastore.retriever import MAX_NODES
from serving.decoding.drafter import DraftRequest
from serving.decoding.row_contexts import RowContexts
from serving.decoding.sampler import Sampler
from serving.decoding.settings import SamplingSettings
from serving.drafters.calibration.calibration import Calibration
from serving.drafters.calibration.calibrator import Prior
from serving.drafters.drawn_chances import BREADTH, drawn_chances, noise_of, with_noise
from serving.drafters.retrieved import NO_TOKENS, Behind, Retrieved, nodes_wanted
from tests.drafters import tree

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
    assert np.all(drawn_chances(np.array([0.0, 1.0]), np.array([30.0, -4.0]), 2.0) > 0)


def test_the_best_node_is_drawn_more_often() -> None:
    rng = np.random.default_rng(0)
    sampler = Sampler(DRAWN, VOCAB, CPU)
    plain = known = 0
    for size in range(1, 400):
        law = rng.dirichlet(np.full(VOCAB, 0.1))
        found = tree(list(range(VOCAB)), [-1] * VOCAB, (law / law.max() * min(1.0, law.max())).tolist())
        step = request(size)
        target = drawn(sampler, torch.from_numpy(np.log(law + 1e-12)), step, [])
        plain += int(found.scores.argmax()) == target
        known += int(with_noise(step, [found], [0])[0].scores.argmax()) == target
    assert known > 1.25 * plain


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
