"""Tests the ratios of pieces to plain decoding around them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import numpy as np

from suffolk.benchmarks.decode.way import BesidePlain, Piece, beside_plain, piece_tokens, ratios

METHODS = ("plain", "control", "drafting")
SPEED_UP = 1.25


def piece(turn: int, tokens: int = 16, seconds: float = 1.0) -> Piece:
    return Piece(turn, tokens, tokens, seconds, 2 * seconds)


def test_a_piece_is_half_a_second_and_at_most_16_tokens() -> None:
    assert [piece_tokens(seconds) for seconds in (1e-3, 0.03, 0.05, 0.25, 3.0)] == [16, 16, 10, 2, 2]


def test_a_piece_is_compared_to_the_plain_pieces_around_it() -> None:
    plain = [piece(0, seconds=2.0), piece(3, seconds=4.0), piece(4, tokens=8)]
    found = beside_plain([piece(1), piece(2, seconds=0.5), piece(5)], plain)
    assert found == [
        BesidePlain(16, 16 / 2, 16 / 2),  # the first is after turn 0 and before the method's own piece at turn 2
        BesidePlain(16, 0.5 * 24 / 5, 0.5 * 24 / 5),
        BesidePlain(16, 24 / 5, 24 / 5),
    ]


def test_a_whole_text_is_compared_to_all_plain_pieces() -> None:
    plain = [piece(0), piece(1, seconds=3.0)]
    assert beside_plain([piece(0, 32, 4.0)], plain) == [BesidePlain(32, 32, 32)]


def test_a_piece_without_plain_ones_is_left_out() -> None:
    """The texts differ after a near-tie, and the plain one is shorter."""
    assert len(beside_plain([piece(1), piece(2), piece(3)], [piece(0)])) == 1
    assert beside_plain([piece(1)], []) == []


def test_no_pieces_have_no_ratio() -> None:
    found = ratios([[], []], seed=0)
    assert found["count"] == 0
    assert {found[name] for name in ("ratio", "ratio_interval", "speed_up", "process_speed_up")} == {None}


def test_few_pieces_have_no_interval() -> None:
    found = ratios([[BesidePlain(12, 10, 10)] * 3, [BesidePlain(6, 10, 12)]], seed=0)
    assert (found["count"], found["ratio"], found["ratio_interval"]) == (4, 1.2, None)
    assert found["speed_up"] == 42 / 40
    assert found["process_speed_up"] == 42 / 42


def test_the_interval_covers_the_ratio_on_a_machine_of_changing_speed() -> None:
    """Every few seconds another program halves the speed, and single pieces stop for long. Control and drafting are known."""
    order, whole = random.Random(1), list[float]()
    texts: dict[str, list[list[BesidePlain]]] = {"control": [], "drafting": []}
    clock = disturbance()
    for _ in range(16):
        pieces: dict[str, list[Piece]] = {method: [] for method in METHODS}
        for turn, method in enumerate(itertools.chain(*(order.sample(METHODS, 3) for _ in range(8)))):
            seconds = next(clock) * (1 / SPEED_UP if method == "drafting" else 1)
            pieces[method].append(piece(turn, seconds=seconds))
        for method, found in texts.items():
            found.append(beside_plain(pieces[method], pieces["plain"]))
        rounds = [next(clock) for _ in range(16)]  # whole texts, one after the other
        whole.append(sum(rounds[8:]) / sum(rounds[:8]))
    for method, truth in (("control", 1.0), ("drafting", SPEED_UP)):
        found = ratios(texts[method], seed=0)
        low, high = found["ratio_interval"]
        assert low < truth < high
        assert high - low < 0.15 * truth
    assert np.percentile(whole, 95) - np.percentile(whole, 5) > 0.5
    assert ratios(texts["control"], seed=0) == ratios(texts["control"], seed=0)


def disturbance() -> Iterator[float]:
    """Seconds of each next piece of plain decoding."""
    generator = np.random.default_rng(0)
    while True:
        busy = float(generator.choice([1.0, 2.0]))
        for _ in range(int(generator.integers(6, 20))):
            stop = 3.0 if generator.random() < 0.03 else 0.0
            yield busy * float(generator.normal(1, 0.03)) + stop
