"""Sampled chains of the recurrent head keep the target's distribution with ``rejection``.

The best beams of the head would not keep it.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
import torch

from suffolk.serving.decoding.drafters.neural.redrafter.beams import BeamSearch, take
from suffolk.serving.decoding.drafters.neural.redrafter.model import RedrafterHead
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest, SampledChain
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.seeded_noise import SeededUniforms
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.decoding.engine.sampling.verification.rejection import verify_chain
from tests.support.heads import drafter_of, last_states, random_head
from tests.support.short_texts import counts_of_texts, distribution_of_texts
from tests.support.tiny_models import tiny_model

FEW = 5
PROMPT = [3, 1, 4, 1, 0, 2]
RUNS = 1000
SETTINGS = [SamplingSettings(temperature=1.5), SamplingSettings(temperature=1.2, top_k=4, frequency_penalty=0.5)]


@pytest.fixture(scope="module")
def target() -> Target:
    return Target.wrap(tiny_model(vocab_size=FEW))


@pytest.fixture(scope="module")
def head(target: Target) -> RedrafterHead:
    return decided_head(target, 3)


def decided_head(target: Target, seed: int) -> RedrafterHead:
    """A random head whose distribution is far from uniform, and from the target's."""
    head = random_head(target, seed)
    with torch.no_grad():
        head.get_parameter("output.weight").mul_(6)
    return head


def distributions_of_target(settings: SamplingSettings) -> npt.NDArray[np.float64]:
    """Return float64[FEW + 1, FEW]: the distribution of the token after each first token, and (last row) of the first."""
    model = tiny_model(vocab_size=FEW)
    with torch.no_grad():
        texts = torch.tensor([[*PROMPT, token] for token in range(FEW)])
        logits = model(texts).logits[:, -2:]
    rows = torch.cat([logits[:, 1], logits[:1, 0]])
    rows[:FEW] -= settings.frequency_penalty * torch.eye(FEW)
    if settings.top_k:
        rows[rows < rows.topk(settings.top_k).values[:, -1:]] = -torch.inf
    return (rows / settings.temperature).softmax(-1).numpy()


def differs(counts: npt.NDArray[np.int64], distribution: npt.NDArray[np.float64]) -> bool:
    """Whether ``counts`` contradict ``distribution`` (G-test, with cells of expectation below 5 merged)."""
    expected = counts.sum() * distribution
    assert not counts[expected == 0].any()
    rare = expected < 5
    counts, expected = np.append(counts[~rare], counts[rare].sum()), np.append(expected[~rare], expected[rare].sum())
    seen = counts > 0
    difference = 2 * (counts[seen] * np.log(counts[seen] / expected[seen])).sum()
    freedom = len(counts) - 1
    return bool(difference > freedom + 4 * math.sqrt(2 * freedom) + 4)


def pairs_differ(texts: list[tuple[int, int]], distributions: npt.NDArray[np.float64]) -> bool:
    """Whether the counts of pairs of tokens contradict the distribution of pairs."""
    counts = np.bincount([first * FEW + second for first, second in texts], minlength=FEW**2)
    return differs(counts, (distributions[FEW][:, None] * distributions[:FEW]).ravel())


def text_of(
    chain: list[int], drafted: torch.Tensor, distributions: npt.NDArray[np.float64], seed: int
) -> tuple[tuple[int, int], int]:
    """Return the first two tokens (sampling the second if a step commits only one), and the number of drafted ones."""
    uniforms = SeededUniforms(seed, torch.device("cpu"))
    wanted = torch.from_numpy(distributions[[FEW, *chain]])
    positions = torch.arange(len(PROMPT), len(PROMPT) + 3)
    verdict = verify_chain(np.array(chain), drafted, wanted, uniforms.coins(positions), uniforms.draws(positions))
    text = [
        *chain[: verdict.accepted],
        verdict.token,
    ]  # a third token has another distribution, so it is ignored
    if len(text) < 2:
        uniform = float(uniforms.draws(positions[1:2]))
        text.append(int(np.searchsorted(distributions[text[0]].cumsum(), uniform).clip(max=FEW - 1)))
    return (text[0], text[1]), verdict.accepted


def drawn_chains(head: RedrafterHead, target: Target, settings: SamplingSettings) -> list[SampledChain]:
    """Draft one chain for each of ``RUNS`` requests with the drafter."""
    drafter = drafter_of(head, target, width=3, length=2)
    features = last_states(torch.tensor([PROMPT[:-1]]), vocab_size=FEW)[0]
    tokens = np.asarray(PROMPT, np.int32)
    requests = []
    for seed in range(RUNS):
        own = SamplingSettings(
            temperature=settings.temperature,
            top_k=settings.top_k,
            frequency_penalty=settings.frequency_penalty,
            seed=seed,
            verification="rejection",
        )
        drafter.follow(seed, features)
        requests.append(DraftRequest(seed, tokens, 8, len(PROMPT), own))
    chains = []
    for proposal in drafter.propose(requests):
        assert isinstance(proposal, SampledChain)
        chains.append(proposal)
    return chains


@pytest.mark.parametrize("settings", SETTINGS)
def test_drawn_chains_leave_the_distribution_alone(
    target: Target, head: RedrafterHead, settings: SamplingSettings
) -> None:
    distributions, chains = distributions_of_target(settings), drawn_chains(head, target, settings)
    counts = np.bincount([int(chain.tree.tokens[0]) for chain in chains], minlength=FEW)
    drafted = chains[0].distributions[0].numpy()
    assert np.abs(drafted - distributions[FEW]).sum() > 0.2  # the head is no copy of the target
    assert np.abs(counts / RUNS - drafted).max() < 0.04  # sampled from the distribution that it reports
    found = [
        text_of(chain.tree.tokens.tolist(), chain.distributions, distributions, seed)
        for seed, chain in enumerate(chains)
    ]
    assert not pairs_differ([text for text, _ in found], distributions)
    accepted = sum(number > 0 for _, number in found) / RUNS
    assert accepted == pytest.approx(
        np.minimum(drafted, distributions[FEW]).sum(), abs=0.04
    )  # 1 - total variation: the optimum


def test_texts_of_several_drafts_follow_the_distribution() -> None:
    """The test runs the step loop, where the sample after a rejected token must not depend on the rejected token."""
    few, length = 3, 4
    target = Target.wrap(tiny_model(vocab_size=few))
    drafter = drafter_of(decided_head(target, 2), target, length=2)
    counts, accepted = counts_of_texts(target, drafter, length, RUNS)
    assert not differs(counts, distribution_of_texts(few, length))
    assert 0.3 < accepted < 1.7  # some of the two are rejected, and some are not


def test_the_ratio_test_on_the_best_beam_is_found(target: Target, head: RedrafterHead) -> None:
    """The published code of ReDrafter tests, at temperatures above 0, a beam of a search as if the beam had been sampled."""
    settings = SETTINGS[0]
    distributions = distributions_of_target(settings)
    feature = last_states(torch.tensor([PROMPT[:-1]]), vocab_size=FEW)[0, -1]
    with torch.no_grad():
        states = head.initial_state(torch.tensor([PROMPT[-2:-1]]))
        search = BeamSearch(torch.tensor([1]), 3, torch.tensor([[-1]]))
        logits, states = head(feature[None], states, torch.tensor([PROMPT[-1:]]))
        log_distribution = (logits / settings.temperature).log_softmax(-1)
        origins = search.grow(log_distribution, torch.arange(FEW).expand(1, 1, FEW))
        assert take(states, origins).shape == (1, 3, 32)
    best = search.tokens[0, 0].tolist()
    texts = [text_of(best, log_distribution[0].exp(), distributions, seed)[0] for seed in range(RUNS)]
    assert pairs_differ(texts, distributions)
