"""Draws: the hash, the noise, the cuts, and the law that the drawn tokens follow."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from datastore.errors import InvalidArgument
from serving.decoding.keyed_noise import KeyedNoise
from serving.decoding.sampler import Sampler, process
from serving.decoding.settings import SamplingSettings

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
    rows = KeyedNoise(seed, 50, CPU).rows([0, 7, 100_000])
    for row, position in zip(rows, (0, 7, 100_000), strict=True):
        assert row.tolist() == pytest.approx([expected_noise(seed, position, token) for token in range(50)], abs=1e-12)


def test_noise_of_a_position_is_the_same_in_any_order_and_after_eviction() -> None:
    noise = KeyedNoise(3, 20, CPU, capacity=2)
    first = noise.rows([5, 6])
    noise.rows([7, 8, 9])
    assert torch.equal(noise.rows([6, 5]), first.flip(0))


def test_noise_differs_between_seeds_positions_and_tokens() -> None:
    values = [KeyedNoise(seed, 200, CPU).rows(list(range(50))).flatten() for seed in (0, 1)]
    assert len(torch.cat(values).unique()) == 2 * 50 * 200


def test_noise_is_gumbel() -> None:
    values = np.sort(KeyedNoise(0, 1000, CPU).rows(list(range(40))).flatten().numpy())
    law = np.exp(-np.exp(-values))
    gap = np.abs(law - (np.arange(len(values)) + 0.5) / len(values)).max()
    assert gap < 1.63 / math.sqrt(
        len(values)
    )  # Kolmogorov and Smirnov at 1 %; the noise is fixed, so no chance is left


@pytest.mark.parametrize(
    "settings",
    [
        SamplingSettings(temperature=1.0),
        SamplingSettings(temperature=0.5),
        SamplingSettings(temperature=1.3, top_k=5),
        SamplingSettings(temperature=0.8, top_p=0.7),
        SamplingSettings(temperature=1.0, top_k=9, top_p=0.9),
    ],
)
def test_draws_follow_the_softmax_of_the_processed_logits(settings: SamplingSettings) -> None:
    logits = torch.randn(1, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 1.5
    draws = 20_000
    sampler = Sampler(settings, 12, CPU)
    counts = np.zeros(12)
    for start in range(0, draws, 500):
        positions = list(range(start, start + 500))
        drawn = sampler.draw(logits.expand(500, -1), positions, torch.arange(500))
        counts += np.bincount(drawn.numpy(), minlength=12)
    law = process(logits, settings).softmax(-1)[0].numpy()
    assert not counts[law == 0].any()
    possible = law > 0
    chi_square = (((counts - draws * law) ** 2)[possible] / (draws * law[possible])).sum()
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
    for row, processed in zip(logits.tolist(), process(logits, settings).tolist(), strict=True):
        assert processed == pytest.approx(naive_process(row, settings))


def test_a_flat_law_needs_the_full_sort() -> None:
    settings = SamplingSettings(temperature=1.0, top_p=0.9)
    kept = (process(torch.linspace(0, 1e-3, 5000, dtype=torch.float64)[None], settings) > -torch.inf).sum()
    assert 4490 <= int(kept) <= 4510


def test_greedy_takes_the_smallest_of_equal_ids() -> None:
    logits = torch.zeros(2, 9)
    logits[0, [3, 6]] = 1.0
    assert Sampler(SamplingSettings(), 9, CPU).draw(logits, [0]).tolist() == [3, 0]


def test_rows_draw_alike_alone_and_together() -> None:
    logits = torch.randn(6, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    settings = SamplingSettings(temperature=1.0, top_p=0.95, seed=4)
    depths = [0, 1, 1, 2, 2, 2]
    together = Sampler(settings, 300, CPU).draw(logits, [10, 11, 12], torch.tensor(depths)).tolist()
    alone = [int(Sampler(settings, 300, CPU).draw(logits[row : row + 1], [10 + depths[row]])) for row in range(6)]
    assert together == alone


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens is 0; it must be 1 or more"),
        ({"temperature": -0.1}, "temperature is -0.1; it must be between 0"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"temperature": math.inf}, "temperature is inf"),
        ({"top_k": -1}, "top_k is -1"),
        ({"top_p": 0.0}, "top_p is 0.0; it must be above 0"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**63}, "seed is 9223372036854775808"),
        ({"stop": ("a", "")}, "stop contains an empty string"),
    ],
)
def test_settings_out_of_bounds_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        SamplingSettings(**changes)  # type: ignore[arg-type]
