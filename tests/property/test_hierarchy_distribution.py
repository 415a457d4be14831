"""Stacks of levels keep the target's distribution with ``rejection``.

This is tested by enumeration of all coins and draws, and by long runs. The same checks find stacks with wrong rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt
import pytest
import torch

from suffolk.serving.decoding.drafters.hierarchy import level_sampling
from suffolk.serving.decoding.drafters.hierarchy.draft_segment import DraftSegment, LevelQuery, LevelReply
from suffolk.serving.decoding.drafters.hierarchy.model_level import ModelLevel
from suffolk.serving.decoding.drafters.hierarchy.recursion import Recursion, SegmentCalibrator, StackedLevel, StackState
from suffolk.serving.decoding.drafters.hierarchy.retrieval_level import RetrievalLevel
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.seeded_noise import SeededUniforms
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.decoding.engine.sampling.verification.rejection import (
    VerifiedChain,
    acceptance,
    residual,
    verify_chain,
)
from tests.property.test_exact_distribution import check_biased
from tests.property.test_redrafter_distribution import differs
from tests.support.hierarchies import DEPTHS, hierarchy, noisy
from tests.support.short_texts import counts_of_texts, distribution_of_texts
from tests.support.tiny_models import tiny_model
from tests.support.toy_target import Outcomes, Text, ToyTarget, check_distribution

SETTINGS = SamplingSettings(max_new_tokens=10, temperature=1.0, verification="rejection", ignore_eos=True)
COPIED = (1, 0, 0, 1)
"""The draft that retrieval finds for any text."""


class ToyLevel(ModelLevel):
    """A level with the distribution of a toy target."""

    def __init__(self, toy: ToyTarget, tokens: int, temperature: float | None = None) -> None:
        self.toy, self.tokens, self.temperature = toy, tokens, temperature
        self.model = SimpleNamespace(vocab_size=toy.vocab)  # type: ignore[assignment]


class Overflowing(ToyTarget):
    """A level without finite logits after texts that end with 0."""

    def distribution(self, text: Text) -> npt.NDArray[np.float64]:
        distribution = super().distribution(text)
        return np.full_like(distribution, np.nan) if text[-1:] == (0,) else distribution


class Script:
    """Replaces ``verify_chain``. It replays given outcomes, then enumerates all outcomes of the next call."""

    def __init__(self) -> None:
        self.chosen: list[int] = []
        self.ways: list[int] = []
        self.weight = 1.0

    def begin(self, chosen: list[int]) -> None:
        self.chosen, self.ways, self.weight = chosen, [], 1.0

    def __call__(
        self,
        tokens: npt.NDArray[np.int64],
        drafter: torch.Tensor | None,
        target: torch.Tensor,
        coins: torch.Tensor,
        draws: torch.Tensor,
    ) -> VerifiedChain:
        events = list(outcomes_of(tokens, drafter, target))
        place = len(self.ways)
        self.ways.append(len(events))
        verdict, weight = events[self.chosen[place] if place < len(self.chosen) else 0]
        self.weight *= weight
        return verdict


def outcomes_of(
    tokens: npt.NDArray[np.int64], drafter: torch.Tensor | None, target: torch.Tensor
) -> Iterator[tuple[VerifiedChain, float]]:
    """Yield every outcome of the production function with its probability, for coins and samples from the middle of each event."""
    size = len(tokens)
    at = torch.arange(size), torch.from_numpy(tokens)
    kept = (target[at] if drafter is None else acceptance(target[at], drafter[at])).numpy()
    for accepted in range(size + 1):
        reached = kept[:accepted].prod()
        coins, draws = np.full(size, 0.5), np.full(size + 1, 0.5)
        coins[:accepted] = kept[:accepted] / 2
        distribution = target[accepted]
        if accepted < size:
            reached *= 1 - kept[accepted]
            coins[accepted] = (1 + kept[accepted]) / 2
            one_hot = torch.eye(target.shape[1], dtype=torch.float64)[tokens[accepted]]
            distribution = residual(distribution, one_hot if drafter is None else drafter[accepted])
        if reached <= 0:
            continue
        ends = distribution.cumsum(0)
        for token in distribution.nonzero()[:, 0].tolist():
            draws[accepted] = ends[token] - distribution[token] / 2
            verdict = verify_chain(tokens, drafter, target, torch.from_numpy(coins), torch.from_numpy(draws))
            assert verdict == VerifiedChain(accepted, token)
            yield verdict, reached * float(distribution[token])


def answer(levels: Sequence[StackedLevel], ask: LevelQuery) -> LevelReply:
    level = levels[ask.level]
    if isinstance(level, RetrievalLevel):
        found = COPIED[len(ask.path) :][: ask.count]
        return DraftSegment(found, np.zeros(len(found)))
    assert isinstance(level, ToyLevel)
    rows = [level.toy.distribution(ask.path + ask.draft[:place]) for place in range(len(ask.draft) + 1)]
    return torch.from_numpy(np.stack(rows)).log()


def handed_up(levels: Sequence[StackedLevel], vocab: int, script: Script) -> Iterator[tuple[DraftSegment, float]]:
    """Yield every draft that the stack can pass to the target, with its probability, by the production recursion."""
    recursion = Recursion(levels, vocab, frozenset(), SegmentCalibrator(retrieval=False), None)
    paths: list[list[int]] = [[]]
    while paths:
        chosen = paths.pop()
        script.begin(chosen)
        text = StackState(0, len(levels))
        text.begin(DraftRequest(0, np.zeros(1, np.int32), 3, 1, SETTINGS))
        going, told = recursion.draft(text), None
        try:
            while True:
                told = answer(levels, going.send(told))
        except StopIteration as end:
            yield end.value, script.weight
        for place in range(len(chosen), len(script.ways)):
            paths += [[*chosen, *[0] * (place - len(chosen)), way] for way in range(1, script.ways[place])]


def texts(levels: Sequence[StackedLevel], target: ToyTarget, script: Script) -> Outcomes:
    """Yield the tokens that the target commits in a first step after the stack's draft."""
    for segment, weight in handed_up(levels, target.vocab, script):
        chain = segment.tokens
        wanted = torch.from_numpy(np.stack([target.distribution(chain[:place]) for place in range(len(chain) + 1)]))
        assert segment.distribution is not None
        for verdict, each in outcomes_of(np.array(chain, np.int64), segment.distribution, wanted):
            yield (*chain[: verdict.accepted], verdict.token), weight * each


def stack(depth: int, vocab: int, seed: int) -> list[StackedLevel]:
    """Create a stack with retrieval at the bottom from depth 3 on.

    Levels have different distributions, one at another temperature.
    """
    toys = [ToyTarget(vocab, seed + place) for place in (10, 20, 30)]
    whole: list[StackedLevel] = [
        RetrievalLevel("prompt-lookup", [], 2 if depth == 3 else 1),
        ToyLevel(toys[0], 1, temperature=0.5),
        ToyLevel(toys[1], 1 if depth > 2 else 2),
        ToyLevel(toys[2], 2),
    ]
    return {1: whole[3:], 2: whole[2:], 3: [whole[0], whole[1], whole[3]], 4: [*whole[:3], ToyLevel(toys[2], 1)]}[depth]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    written = Script()
    monkeypatch.setattr(level_sampling, "verify_chain", written)
    return written


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("vocab", [2, 3])
def test_stacks_leave_the_distribution_alone(depth: int, vocab: int, script: Script) -> None:
    if (depth, vocab) == (4, 3):
        vocab = 2
    target = ToyTarget(vocab, depth)
    check_distribution(target, texts(stack(depth, vocab, depth), target, script))


def test_retrieval_below_a_level_leaves_the_distribution_alone(script: Script) -> None:
    target = ToyTarget(3, 5)
    levels = [RetrievalLevel("prompt-lookup", [], 2), ToyLevel(ToyTarget(3, 6), 2)]
    check_distribution(target, texts(levels, target, script))


@pytest.mark.parametrize(("depth", "place"), [(1, 0), (2, 0), (2, 1), (3, 1), (3, 2), (4, 2)])
def test_a_level_without_numbers_behind_some_tokens_leaves_the_distribution_alone(
    depth: int, place: int, script: Script
) -> None:
    """Regression: all samples used to be dropped.

    So whether a token survived depended on the token itself, which biased the distribution.
    """
    target, levels = ToyTarget(2, depth), stack(depth, 2, depth)
    level = levels[place]
    assert isinstance(level, ToyLevel)
    level.toy = Overflowing(2, 40 + place)
    check_distribution(target, texts(levels, target, script))


def test_a_draft_that_is_dropped_for_what_stands_behind_it_is_found(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, levels = ToyTarget(2, 1), [ToyLevel(Overflowing(2, 40), 2)]
    draft = Recursion.draft

    def wrong(self: Recursion, text: object) -> object:
        found = yield from draft(self, text)  # type: ignore[arg-type]
        return found.head(0) if text.is_cut else found  # type: ignore[attr-defined]

    monkeypatch.setattr(Recursion, "draft", wrong)
    check_biased(target, texts(levels, target, script), 0.01)


def test_a_level_that_tells_the_distribution_of_the_one_below_is_found(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With this wrong rule, a level reports the distribution of the level below instead of its own.

    So the verifier tests min(1, p / q) with a wrong q.
    """
    target, levels = ToyTarget(2, 2), stack(2, 2, 2)
    below = levels[0]
    assert isinstance(below, ToyLevel)
    speculative_sample = level_sampling.speculative_sample

    def wrong(sampler: object, uniforms: object, request: object, path: Text, *rest: object) -> DraftSegment:
        found: DraftSegment = speculative_sample(sampler, uniforms, request, path, *rest)  # type: ignore[arg-type]
        distributions = [below.toy.distribution(path + found.tokens[:place]) for place in range(len(found))]
        return DraftSegment(found.tokens, found.draft_probs, torch.from_numpy(np.stack(distributions)))

    monkeypatch.setattr("suffolk.serving.decoding.drafters.hierarchy.recursion.speculative_sample", wrong)
    check_biased(target, texts(levels, target, script), 0.01)


def test_a_level_that_keeps_what_the_one_below_drew_is_found(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """This wrong rule omits the verification by a level.

    The level then reports its distribution for tokens that it never sampled.
    """
    target, levels = ToyTarget(2, 3), stack(2, 2, 3)
    speculative_sample = level_sampling.speculative_sample

    def wrong(
        sampler: object, uniforms: object, request: object, path: Text, draft: DraftSegment, *rest: object
    ) -> DraftSegment:
        found: DraftSegment = speculative_sample(sampler, uniforms, request, path, draft, *rest)  # type: ignore[arg-type]
        return DraftSegment((draft.tokens + found.tokens)[: len(found)], found.draft_probs, found.distribution)

    monkeypatch.setattr("suffolk.serving.decoding.drafters.hierarchy.recursion.speculative_sample", wrong)
    check_biased(target, texts(levels, target, script), 0.01)


FEW, LENGTH, RUNS = 3, 3, 800


def counts_of_stack(
    depth: int, temperatures: tuple[float | None, float | None] = (None, None)
) -> tuple[npt.NDArray[np.int64], float]:
    """How often each text came, and accepted tokens per step."""
    target = Target.wrap(tiny_model(vocab_size=FEW))
    drafter = hierarchy(depth, target, noisy(0.1, vocab_size=FEW), slots=200, capacity=20, temperatures=temperatures)
    return counts_of_texts(target, drafter, LENGTH, RUNS)


@pytest.mark.parametrize(
    ("depth", "temperatures"), [(1, (None, None)), (2, (None, 1.0)), (3, (1.0, None)), (4, (0.0, None))]
)
def test_long_runs_of_stacks_follow_the_distribution(
    depth: int, temperatures: tuple[float | None, float | None]
) -> None:
    found, accepted = counts_of_stack(depth, temperatures)
    assert not differs(found, distribution_of_texts(FEW, LENGTH))
    assert 0.4 < accepted < 3.5  # some are rejected, and some are not


def test_coins_of_a_level_that_also_choose_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Same(level_sampling.FreshUniforms):
        def take(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
            coins, _ = super().take(count)
            return coins, coins

    monkeypatch.setattr("suffolk.serving.decoding.drafters.hierarchy.recursion.FreshUniforms", Same)
    found, _ = counts_of_stack(3)
    assert differs(found, distribution_of_texts(FEW, LENGTH))


def test_levels_and_target_have_numbers_of_their_own() -> None:
    places, cpu = torch.arange(2000), torch.device("cpu")
    streams = [
        stream(places)
        for level in (0, 1, 2)
        for each in [SeededUniforms(7, cpu, level)]
        for stream in (each.coins, each.draws)
    ]
    together = np.corrcoef(torch.stack(streams).numpy())
    assert np.abs(together - np.eye(6)).max() < 0.1
    taken = level_sampling.FreshUniforms(7, 1, cpu)
    coins = torch.cat([taken.take(count)[0] for count in (1, 4, 2)])
    assert torch.equal(coins, SeededUniforms(7, cpu, 1).coins(torch.arange(7)))  # each once
