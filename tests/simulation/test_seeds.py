"""Some simulated histories of a replicated store. ``python -m tests.simulation`` runs more."""

from __future__ import annotations

import pytest

from tests.simulation.simulation import simulate

SEEDS = 16


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_seed(seed: int) -> None:
    simulate(seed)


def test_a_seed_replays_exactly() -> None:
    first, second = simulate(SEEDS), simulate(SEEDS)
    assert first.history == second.history
    assert first.world.entry == second.world.entry
