"""Tests sampled chains, typical acceptance and log-probabilities in a whole engine or loop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from suffolk.serving.decoding.engine.loop.drafter import SampledChain
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.verify_step import Outcome, verify
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.property.test_redrafter_distribution import differs
from tests.support.drafters import MadeUpDrafter, alone, eager_decoder, eager_loop, knowing, tree
from tests.support.tiny_models import VOCAB, tiny_model

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
LONG = SamplingSettings(max_new_tokens=400)


def sampled(target: Target, sampling: SamplingSettings, rng: np.random.Generator, scale: float = 1.0) -> MadeUpDrafter:
    """Samples chains of 4 from a distribution near the target's own, with that distribution multiplied by ``scale``."""
    vocab = target.vocab_size

    def make(request: Any) -> Any:
        text, rows = request.tokens.tolist(), []
        for _ in range(4):
            logits = target.prefill(text, target.new_cache(1, len(text)))[0] / max(sampling.temperature, 0.5)
            rows.append((logits + 0.3 * torch.from_numpy(rng.standard_normal(vocab))).softmax(-1))
            text.append(int(rng.choice(vocab, p=rows[-1].numpy())))
        return SampledChain(tree(text[-4:], [-1, 0, 1, 2]), torch.stack(rows) * scale)

    return MadeUpDrafter(make)


@pytest.mark.parametrize("sampling", [SamplingSettings(24), SamplingSettings(24, 1.0, top_p=0.9, seed=3)])
def test_rejection_accepts_chains_of_a_known_distribution(target: Target, sampling: SamplingSettings) -> None:
    """Greedy output equals plain decoding.

    Sampled output has the same distribution (tests/property/test_exact_distribution.py).
    """
    sampling = replace(sampling, verification="rejection")
    run = eager_decoder(target, sampled(target, sampling, np.random.default_rng(0))).generate(PROMPT, sampling)
    list(run)
    assert run.stats.finish == "length"
    assert run.stats.accepted > 3
    assert run.stats.draft_failures.total() == 0
    if sampling.temperature == 0:
        assert run.tokens == alone(target, PROMPT, SamplingSettings(24))


def test_a_law_that_is_none_costs_the_draft(target: Target) -> None:
    sampling = SamplingSettings(10, 1.0, verification="rejection")
    run = eager_decoder(target, sampled(target, sampling, np.random.default_rng(0), scale=2.0)).generate(
        PROMPT, sampling
    )
    list(run)
    assert len(run.tokens) == 10
    assert run.stats.accepted == 0
    assert run.stats.draft_failures["InvalidArgument"] == run.stats.draft_calls > 5


def test_a_chain_whose_law_ends_in_no_numbers_is_judged_up_to_there() -> None:
    """Regression: if the drafter returned NaN after its first token, the whole chain used to be dropped.

    So its first tokens were sampled too rarely.
    """
    few, runs = 5, 800
    target, rng = Target.wrap(tiny_model(vocab_size=few)), np.random.default_rng(0)

    def make(request: Any) -> Any:
        sampling = torch.tensor([[0.6, 0.1, 0.1, 0.1, 0.1]] * 2, dtype=torch.float64)
        chain = rng.choice(few, 2, p=sampling[0].numpy()).tolist()
        if chain[0] == 0:
            sampling[1] = torch.nan
        return SampledChain(tree(chain, [-1, 0]), sampling)

    drafter = MadeUpDrafter(make)
    loop = eager_loop(target, {"made-up": drafter}, slots=200, capacity=20)
    prompt = [0, 1, 2]
    settings = [SamplingSettings(4, 2.0, seed=seed, verification="rejection", ignore_eos=True) for seed in range(runs)]
    requests = [Request(each.seed, target, prompt, each, "made-up", 8) for each in settings]
    waiting = list(requests)
    while waiting or loop.running:
        while waiting and loop.free:
            loop.join(waiting.pop())
        loop.step()
    # the first token comes with the prompt's pass; the drafts stand behind it
    for first in range(few):
        with torch.no_grad():
            sampling = (target.prefill([*prompt, first], target.new_cache(1, 4))[0] / 2).softmax(-1).double().numpy()
        seconds = [each.generated[1] for each in requests if each.generated[0] == first]
        assert not differs(np.bincount(seconds, minlength=few), sampling)
    failed = sum(each.stats.draft_failures["InvalidArgument"] for each in requests)
    assert runs / 4 < failed == sum(each.stats.draft_failures.total() for each in requests)


def test_a_token_does_not_live_by_whether_the_target_has_numbers_behind_it() -> None:
    """Regression: the whole draft used to be dropped and counted as a failure.

    So tokens after which the target overflows were sampled too rarely.
    """
    few, runs, counts = 3, 3000, np.zeros(3, np.int64)
    target, rng = Target.wrap(tiny_model(vocab_size=few)), np.random.default_rng(0)
    for seed in range(runs):
        settings = SamplingSettings(4, 1.0, seed=seed, verification="rejection", ignore_eos=True)
        asked = Request(seed, target, [0, 1, 2], settings, "made-up", 8)
        drafted = int(rng.integers(few))
        rows = torch.zeros(2, few)
        rows[1] = torch.nan if drafted == 0 else 0.0
        chain = SampledChain(tree([drafted], [-1]), torch.full((1, few), 1 / few, dtype=torch.float64))
        [outcome] = verify([asked], [chain], [rows])
        assert isinstance(outcome, Outcome)
        counts[drafted if len(outcome.path) else outcome.token] += 1
        assert not asked.stats.draft_failures
    assert not differs(counts, np.full(few, 1 / few))


@pytest.mark.parametrize("sampling", [torch.empty(2, 0, dtype=torch.float64), torch.ones(2, 5).to(torch.float8_e4m3fn)])
def test_a_law_that_cannot_even_be_looked_at_costs_the_draft(sampling: torch.Tensor) -> None:
    """Regression: the search for the chain's valid rows used to raise again, which ended the engine."""
    target = Target.wrap(tiny_model(vocab_size=5))
    settings = SamplingSettings(6, 2.0, seed=1, verification="rejection", ignore_eos=True)
    drafter = MadeUpDrafter(lambda request: SampledChain(tree([1, 2], [-1, 0]), sampling))
    run = eager_decoder(target, drafter).generate([0, 1, 2], settings)
    list(run)
    assert len(run.tokens) == 6
    assert run.stats.draft_failures["InvalidArgument"] == run.stats.draft_calls > 2


class Unreadable(torch.Tensor):
    """Supports slicing and ``shape``, and nothing else."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.Tensor.to:
            raise RuntimeError("the distributions are gone")
        return super().__torch_function__(function, types, args, kwargs)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (torch.Tensor.numpy, "InvalidArgument"),
        (lambda sampling: sampling.to("meta"), "InvalidArgument"),
        (lambda sampling: sampling.as_subclass(Unreadable), "RuntimeError"),
    ],
)
def test_a_law_that_cannot_be_read_costs_the_draft(target: Target, spoil: Any, reason: str) -> None:
    """Regression: sampling from this distribution used to end the engine and all its requests.

    The output equals that of a request without a drafter.
    """
    sound = sampled(target, SamplingSettings(10, 1.0), np.random.default_rng(0))

    def make(request: Any) -> Any:
        [chain] = sound.propose([request])
        return SampledChain(chain.tree, spoil(chain.distributions))  # type: ignore[attr-defined]

    sampling = SamplingSettings(10, 1.0, verification="rejection")
    run = eager_decoder(target, MadeUpDrafter(make)).generate(PROMPT, sampling)
    list(run)
    assert run.tokens == alone(target, PROMPT, sampling)
    assert run.stats.accepted == 0
    assert run.stats.draft_failures[reason] > 5


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_typical_acceptance_takes_likely_tokens(target: Target, temperature: float) -> None:
    sampling = SamplingSettings(24, temperature, verification="typical", epsilon=0.01, delta=0.01)
    plain = alone(target, PROMPT, SamplingSettings(24))
    run = eager_decoder(target, knowing(len(PROMPT), plain, 5, np.random.default_rng(0), VOCAB)).generate(
        PROMPT, sampling
    )
    list(run)
    assert run.stats.accepted > 5
    assert (run.tokens == plain) == (temperature == 0)


def test_log_probabilities_are_those_of_the_plain_text(target: Target) -> None:
    sampling = SamplingSettings(12, logprobs=2)
    plain = eager_decoder(target, None).generate(PROMPT, sampling)
    expected = [each for step in plain for each in step.log_probabilities]
    drafted = eager_decoder(target, knowing(len(PROMPT), plain.tokens, 5, np.random.default_rng(0), VOCAB))
    found = [each for step in drafted.generate(PROMPT, sampling) for each in step.log_probabilities]
    assert [each.token for each in found] == [each.token for each in expected] == plain.tokens
    assert [each.value for each in found] == pytest.approx([each.value for each in expected])
    assert all(each.alternatives[0] == (each.token, each.value) for each in found)
