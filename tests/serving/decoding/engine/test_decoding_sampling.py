"""Tests sampling: the hash, the noise, the cuts, and the distribution of the samples."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.engine.model.row_contexts import RowContexts
from suffolk.serving.decoding.engine.sampling.candidates import select_candidates
from suffolk.serving.decoding.engine.sampling.row_sampling import likeliest
from suffolk.serving.decoding.engine.sampling.sampler import Sampler
from suffolk.serving.decoding.engine.sampling.seeded_noise import SeededNoise
from suffolk.serving.decoding.engine.sampling.settings import MIN_TEMPERATURE, SamplingSettings
from tests.support.drafters import tree

CPU = torch.device("cpu")
MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def splitmix(value: int) -> int:
    """The 64-bit finaliser with Python's own integers."""
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & MASK
    return value ^ value >> 31


def expected_noise(seed: int, position: int, token: int) -> float:
    key = splitmix(splitmix(seed ^ GOLDEN) + (position + 1) * GOLDEN & MASK)
    bits = splitmix((token + 1) * GOLDEN + key & MASK) >> 11
    return -math.log(-math.log((bits + 0.5) * 2.0**-53))


@pytest.mark.parametrize("seed", [0, 1, 12345, 2**63 - 1])
def test_noise_is_the_documented_hash(seed: int) -> None:
    for position in (0, 7, 100_000):
        row = SeededNoise(seed, 50, CPU).rows(position, 1)[0]
        assert row.tolist() == pytest.approx([expected_noise(seed, position, token) for token in range(50)], abs=1e-12)


def test_noise_is_the_same_in_any_window_and_for_any_tokens() -> None:
    noise = SeededNoise(3, 20, CPU)
    rows = noise.rows(5, 3)
    assert torch.equal(noise.rows(5, 2), rows[:2])  # nothing new to compute, which once was rejected
    assert torch.equal(noise.rows(6, 4)[:2], rows[1:])
    assert torch.equal(noise.rows(4, 2)[1], rows[0])
    tokens = torch.tensor([[3, 19, 0], [7, 7, 1], [2, 11, 13]])
    assert torch.equal(noise.at(torch.tensor([[5], [6], [7]]), tokens), rows.gather(1, tokens))


def test_noise_differs_between_seeds_positions_and_tokens() -> None:
    values = [SeededNoise(seed, 200, CPU).rows(0, 50).flatten() for seed in (0, 1)]
    assert len(torch.cat(values).unique()) == 2 * 50 * 200


def test_noise_is_gumbel() -> None:
    values = np.sort(SeededNoise(0, 1000, CPU).rows(0, 40).flatten().numpy())
    distribution = np.exp(-np.exp(-values))
    gap = np.abs(distribution - (np.arange(len(values)) + 0.5) / len(values)).max()
    assert gap < 1.63 / math.sqrt(
        len(values)
    )  # Kolmogorov-Smirnov test at 1 %; the noise is fixed, so the result is deterministic


@pytest.mark.parametrize("spread", [0.0, 1.0, 30.0])
@pytest.mark.parametrize("vocabulary", [1, 40, 5000])
def test_a_sample_is_the_highest_score_although_most_scores_are_not_computed(vocabulary: int, spread: float) -> None:
    generator = torch.Generator().manual_seed(vocabulary)
    odd = (math.nan, math.inf, -math.inf)
    for seed in range(40):
        logits = torch.randn(4, vocabulary, generator=generator) * spread
        logits[3, seed % vocabulary :: 7] = odd[seed % 3]
        sampler = Sampler(SamplingSettings(temperature=(1.0, 0.01, 5.0)[seed % 3], seed=seed << 50), vocabulary, CPU)
        contexts = RowContexts.of_tree(np.zeros(seed + 1, np.int32), 1, tree([0, 0, 0], [-1, 0, 0]))
        assert torch.equal(sampler.sample(logits, contexts), sampler.scores(logits, contexts).argmax(-1))


@pytest.mark.parametrize(
    "settings",
    [
        SamplingSettings(temperature=1.0),
        SamplingSettings(temperature=0.5),
        SamplingSettings(temperature=1.3, top_k=5),
        SamplingSettings(temperature=0.8, top_p=0.7),
        SamplingSettings(temperature=1.0, top_k=9, top_p=0.9),
        SamplingSettings(temperature=1.1, min_p=0.2),
        SamplingSettings(temperature=1.0, repetition_penalty=1.4, presence_penalty=0.5, bad_words=((4,),)),
    ],
)
def test_draws_follow_the_softmax_of_the_processed_logits(settings: SamplingSettings) -> None:
    logits = torch.randn(1, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 1.5
    draws, rows = 20_000, 50
    sampler = Sampler(settings, 12, CPU)
    text = np.full(draws + 3, 3, np.int32)  # token 3 repeatedly: the positions differ, the penalised tokens do not
    contexts = RowContexts.of_tree(text[:3], 1, tree([3] * (rows - 1), list(range(-1, rows - 2))))
    counts = np.zeros(12)
    for length in range(3, draws + 3, rows):
        drawn = sampler.sample(logits.expand(rows, -1), replace(contexts, tokens=text[:length]))
        counts += np.bincount(drawn.numpy(), minlength=12)
    distribution = Sampler(settings, 12, CPU).probabilities(logits, RowContexts.of_text(text[:3], 1))[0].numpy()
    assert not counts[distribution == 0].any()
    possible = distribution > 0
    chi_square = (((counts - draws * distribution) ** 2)[possible] / (draws * distribution[possible])).sum()
    freedom = possible.sum() - 1
    assert chi_square < freedom + 4 * math.sqrt(2 * freedom) + 4


def naive_process(row: list[float], settings: SamplingSettings) -> list[float]:
    scaled = [value / settings.temperature for value in row]
    if 0 < settings.top_k < len(scaled):
        least = sorted(scaled, reverse=True)[settings.top_k - 1]
        scaled = [value if value >= least else -math.inf for value in scaled]
    if settings.top_p < 1.0:
        weights = [math.exp(value) for value in scaled]
        held, floor = 0.0, math.inf
        for value in sorted(scaled, reverse=True):
            floor = value
            held += math.exp(value) / sum(weights)
            if held >= settings.top_p:
                break
        scaled = [value if value >= floor else -math.inf for value in scaled]
    return scaled


@pytest.mark.parametrize("vocab", [7, 40, 3000])
@pytest.mark.parametrize(
    ("top_k", "top_p"), [(0, 1.0), (1, 1.0), (3, 1.0), (0, 0.05), (0, 0.5), (0, 0.999), (5, 0.6), (9999, 0.9)]
)
def test_cuts_equal_the_naive_ones(vocab: int, top_k: int, top_p: float) -> None:
    settings = SamplingSettings(temperature=0.7, top_k=top_k, top_p=top_p)
    logits = torch.randn(3, vocab, generator=torch.Generator().manual_seed(vocab), dtype=torch.float64)
    candidates = select_candidates(logits, settings)
    chosen = candidates.scatter(candidates.values, vocab, -math.inf)
    for row, processed in zip(logits.tolist(), chosen.tolist(), strict=True):
        assert processed == pytest.approx(naive_process(row, settings))


def test_a_flat_law_needs_the_full_sort() -> None:
    settings = SamplingSettings(temperature=1.0, top_p=0.9)
    logits = torch.stack([torch.linspace(0, 1e-3, 5000), torch.linspace(-30, 30, 5000)])
    kept = (select_candidates(logits.double(), settings).values > -torch.inf).sum(-1)
    assert 4490 <= int(kept[0]) <= 4510
    assert 180 <= int(kept[1]) <= 200  # 1 - exp(-x * 60 / 5000) = 0.9 at x = 192


@pytest.mark.parametrize(
    "changes", [{}, {"top_k": 3}, {"top_p": 0.9}, {"min_p": 0.1}, {"bad_words": ((2,),)}, {"presence_penalty": 1.0}]
)
@pytest.mark.parametrize("temperature", [0.0, 0.5])
def test_the_logits_of_the_caller_stay_as_they_are(changes: dict[str, Any], temperature: float) -> None:
    """Regression: sampling in fp64 used to add noise to the target's own logits, because the conversion makes no copy."""
    logits = torch.randn(2, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    before = logits.clone()
    sampler = Sampler(SamplingSettings(temperature=temperature, **changes), 9, CPU)
    contexts = RowContexts.of_tree(np.array([1, 2]), 1, tree([2], [-1]))
    for method in (sampler.sample, sampler.scores, sampler.probabilities):
        method(logits, contexts)
        assert torch.equal(logits, before)


def test_greedy_takes_the_smallest_of_equal_ids() -> None:
    logits = torch.zeros(2, 9)
    logits[0, [3, 6]] = 1.0
    context = RowContexts.of_tree(np.array([1]), 1, tree([2], [-1]))
    assert Sampler(SamplingSettings(), 9, CPU).sample(logits, context).tolist() == [3, 0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens is 0; it must be between 1 and"),
        ({"temperature": -0.1}, "temperature is -0.1; it must be between 0"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"temperature": math.inf}, "temperature is inf"),
        ({"top_k": -1}, "top_k is -1"),
        ({"top_p": 0.0}, "top_p is 0.0; it must be above 0"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**63}, "seed is 9223372036854775808"),
        ({"stop": ("a", "")}, r"stop\[1\] is ''; it must be the text, not empty"),
        ({"min_p": -0.1}, "min_p is -0.1; it must be between 0"),
        ({"min_p": 1.1}, "min_p is 1.1"),
        ({"min_p": math.nan}, "min_p is nan"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0; it must be between 0.01 and 100"),
        ({"repetition_penalty": math.inf}, "repetition_penalty is inf"),
        ({"repetition_penalty": math.nan}, "repetition_penalty is nan"),
        ({"presence_penalty": 2.1}, "presence_penalty is 2.1; it must be between -2 and 2"),
        ({"frequency_penalty": -3}, "frequency_penalty is -3"),
        ({"bad_words": ((1, 2), ())}, r"bad_words\[1\] is \(\); it must be one or more token ids"),
        ({"bad_words": ((1, -2),)}, r"bad_words\[0\] is \(1, -2\)"),
        ({"logprobs": 21}, "logprobs is 21; it must be between 0 and 20"),
        ({"logprobs": -1}, "logprobs is -1"),
        ({"processors": (3,)}, r"processors\[0\] is 3; it must be a function"),
        ({"token_mask": "all"}, "token_mask is 'all'; it must be a function"),
        ({"verification": "guess"}, "verification is 'guess'; it must be one of match, rejection, typical"),
        ({"epsilon": 1.5}, "epsilon is 1.5; it must be above 0 and at most 1"),
        ({"delta": math.nan}, "delta is nan"),
        ({"epsilon": 0}, "epsilon is 0.0; it must be above 0"),  # failed at the first step that verified a draft
        ({"delta": 0.0}, "delta is 0.0; it must be above 0"),
        ({"temperature": 1e-320}, "temperature is 1e-320; it must be 0 .greedy. or at least 1e-06"),
        ({"temperature": 10**400}, "temperature is beyond all floating-point numbers"),
        ({"repetition_penalty": 1e-300}, "repetition_penalty is 1e-300; it must be between 0.01"),
        ({"max_new_tokens": 10**30}, "max_new_tokens is 1000000000000000000000000000000; it must be between 1 and"),
        ({"max_new_tokens": "5"}, "max_new_tokens is '5', of type str; it must be a whole number"),
        ({"max_new_tokens": 5.0}, "max_new_tokens is 5.0, of type float; it must be a whole number"),
        ({"max_new_tokens": True}, "max_new_tokens is True, of type bool; it must be a whole number"),
        ({"temperature": None}, "temperature is None, of type NoneType; it must be a number"),
        ({"top_p": "0.5"}, "top_p is '0.5', of type str; it must be a number"),
        ({"seed": 1.5}, "seed is 1.5, of type float; it must be a whole number"),
        ({"seed": None}, "seed is None"),
        ({"top_k": 2.5}, "top_k is 2.5, of type float"),  # ended the engine, for all requests
        ({"logprobs": 1.5}, "logprobs is 1.5, of type float"),  # this also ended the engine
        ({"stop": (1,)}, r"stop\[0\] is 1; it must be the text"),  # this too
        ({"stop": None}, "stop is None, of type NoneType; it must be a tuple of strings"),
        ({"stop": "END"}, "stop is 'END', of type str; it must be a tuple of strings, also for a single one"),
        ({"bad_words": (5,)}, r"bad_words\[0\] is 5, of type int; it must be a tuple of token ids"),
        ({"bad_words": ((1.5,),)}, r"bad_words\[0\]\[0\] is 1.5, of type float"),
        ({"processors": max}, "processors is <built-in function max>, .* it must be a tuple of functions"),
        ({"ignore_eos": "no"}, "ignore_eos is 'no'; it must be true or false"),
        ({"verification": None}, "verification is None; it must be one of"),
    ],
)
def test_settings_out_of_bounds_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        SamplingSettings(**changes)  # type: ignore[arg-type]


def test_numbers_of_numpy_and_lists_are_taken() -> None:
    settings = SamplingSettings(
        max_new_tokens=np.int64(5),  # type: ignore[arg-type]
        temperature=np.float32(0.5),  # type: ignore[arg-type]
        top_k=np.uint8(3),  # type: ignore[arg-type]
        stop=["END"],  # type: ignore[arg-type]
        bad_words=[[np.int32(4), 5]],  # type: ignore[arg-type, list-item]
    )
    assert settings == SamplingSettings(5, 0.5, 3, stop=("END",), bad_words=((4, 5),))
    assert all(type(value) is int for value in (settings.max_new_tokens, settings.top_k, settings.bad_words[0][0]))
    assert type(settings.temperature) is float
    hash(settings)


def test_the_least_temperature_still_draws_among_equals() -> None:
    """Regression: at temperature 1e-320 the logits used to be infinite.

    Far below 1e-6 the noise is lost in rounding, and the first of equal tokens always wins.
    """
    sampler = Sampler(SamplingSettings(temperature=MIN_TEMPERATURE), 4, CPU)
    logits = torch.tensor([[5000.0, 5000.0, -3.0, 4999.0]])
    text = np.zeros(300, np.int32)
    drawn = [int(sampler.sample(logits, RowContexts.of_text(text[:length], 1))) for length in range(1, 300)]
    assert set(drawn) == {0, 1}
    assert 100 < sum(drawn) < 200


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_likeliest_is_the_first_of_the_highest(dtype: torch.dtype) -> None:
    """This is also true if two logits differ only in a wider dtype."""
    logits = torch.randn(50, 3000, generator=torch.Generator().manual_seed(0)).to(dtype)
    logits[:, [17, 900]] = 8.0
    logits[25:, 900] = 8.0 + 8.0 * torch.finfo(dtype).eps
    assert likeliest(logits).tolist() == [17] * 25 + [900] * 25
