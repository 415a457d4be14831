"""Tests the verdict of a replay: yes only from measured costs, no from M alone, and the reason from the figures."""

from __future__ import annotations

from typing import Any

from suffolk.benchmarks.replay.report import judge


def row(drafter: str, length: float, speed_up: float | None = None, texts: int = 10) -> dict[str, Any]:
    found = {
        "drafter": drafter,
        "nodes": 16,
        "texts": texts,
        "tokens": 900,
        "mean_generated_length": length,
        "acceptance_by_depth": [0.4, 0.1],
        "accepted_by_source": {"datastore": 0.7, "prompt-lookup": 0.3},
    }
    return found if speed_up is None else found | {"speed_up": speed_up}


def test_costs_give_a_yes_with_the_expected_speed_up() -> None:
    verdict = judge([row("prompt-lookup", 1.5, 1.3), row("hybrid", 2.1, 1.75), row("datastore", 2.2, 1.2)])
    assert (verdict.answer, verdict.drafter, verdict.speed_up, verdict.alone) == ("yes", "hybrid", 1.75, 1.3)
    assert verdict.lines() == [
        "verdict: yes, expect 1.75 times the speed of plain decoding with hybrid and up to 16 nodes, by the costs of passes",
        "reason: 40% of the passes accept a drafted token, which makes 2.10 tokens a pass; most of the accepted tokens come from "
        "datastore (70%); a pass with its draft takes 1.20 times as long as a plain one",
        "prompt-lookup alone: 1.30, so the other sources add +0.45",
        "basis: 10 texts, 900 tokens; fewer than 100, so other texts may give another figure",
    ]


def test_a_gain_within_the_noise_is_a_no() -> None:
    verdict = judge([row("hybrid", 2.1, 1.05)])
    assert verdict.answer == "no"
    assert verdict.lines()[0].startswith("verdict: no, expect 1.05 times the speed of plain decoding")
    assert "takes 2.00 times as long as a plain one" in verdict.lines()[1]


def test_without_costs_m_can_only_say_no_or_perhaps() -> None:
    assert judge([row("hybrid", 2.1)]).answer == "perhaps"
    assert judge([row("hybrid", 2.1)]).lines()[0].startswith("verdict: perhaps, at most 2.10 times as fast")
    assert judge([row("hybrid", 1.04), row("prompt-lookup", 1.02)]).lines()[0] == (
        "verdict: no, at most 1.04 times as fast with hybrid and up to 16 nodes, whatever passes cost"
    )


def test_many_texts_need_no_warning() -> None:
    assert judge([row("prompt-lookup", 2.1, 1.5, texts=300)]).lines()[2:] == ["basis: 300 texts, 900 tokens"]
