"""Prompts are read in small parts while other requests decode, and in large ones otherwise."""

from __future__ import annotations

import pytest

from suffolk.serving.decoding.engine.loop.prefill_pace import LEAST_TOKENS, PrefillPace
from suffolk.serving.decoding.engine.model.language_model import PREFILL_CHUNK


def passes(pace: PrefillPace, token_seconds: float, pass_seconds: float = 0.05) -> int:
    """Learn from forty passes of a device with these costs; returns the prompt tokens of a pass beside decoding requests."""
    for _ in range(20):
        pace.learn(0, 2, pass_seconds)
        read = pace.tokens(2)
        pace.learn(read, 2, pass_seconds + read * token_seconds)
    return pace.tokens(2)


def test_prompts_alone_are_read_in_whole_chunks() -> None:
    pace = PrefillPace()
    assert pace.tokens(0) == pace.tokens(3) == PREFILL_CHUNK  # nothing is measured yet
    passes(pace, 0.001)
    assert pace.tokens(0) == PREFILL_CHUNK


@pytest.mark.parametrize(
    ("token_seconds", "tokens"), [(0.001, 50), (0.1, LEAST_TOKENS), (1e-6, PREFILL_CHUNK), (0.0005, 100)]
)
def test_a_prompt_adds_about_one_pass(token_seconds: float, tokens: int) -> None:
    assert passes(PrefillPace(), token_seconds) == pytest.approx(tokens, rel=0.1)


def test_one_slow_pass_does_not_set_the_pace_of_a_prompt() -> None:
    """Regression: a single slow pass before a long prompt doubled all passes that read it."""
    pace = PrefillPace()
    assert passes(pace, 0.001) == pytest.approx(50, rel=0.1)
    pace.learn(0, 2, 0.5)
    assert pace.tokens(2) == pytest.approx(50, rel=0.1)


def test_the_pace_follows_the_device() -> None:
    pace = PrefillPace()
    assert passes(pace, 0.001) == pytest.approx(50, rel=0.1)
    assert passes(pace, 0.002) == pytest.approx(25, rel=0.1)
    pace = PrefillPace()
    pace.learn(0, 1, 0.05)
    assert pace.tokens(1) == LEAST_TOKENS  # until the cost of a prompt token is measured
    pace.learn(512, 0, 0.512)
    assert pace.tokens(1) == 50
