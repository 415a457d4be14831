"""Tests the summary of many decoded answers."""

from __future__ import annotations

import pytest

from suffolk.benchmarks.decode.report import decoding_notes
from suffolk.benchmarks.decode.summary import summarize
from suffolk.benchmarks.demo.run import busy
from suffolk.serving.decoding.engine.loop.stats import PARTS


def run_row(drafter: str, tokens: int, steps: int, seconds: float, **changes: object) -> dict[str, object]:
    row: dict[str, object] = {
        "group": "code",
        "drafter": drafter,
        "tokens": tokens,
        "steps": steps,
        "decode_seconds": seconds,
        "tokens_per_second": (tokens - 1) / seconds,
        "tokens_compared": tokens,
        "seconds": dict.fromkeys(PARTS, 0.0) | {"prefill": 1.0, "draft": 0.1 * seconds, "wait": 0.2 * seconds},
        "accepted_by_source": {"3": 2, "1": 1} if drafter != "none" else {},
        "nodes_verified": 2 * steps,
        "draft_failures": {},
        "identical": True,
        "speed_up": 1.0,
    }
    return row | changes


def test_near_ties_are_explained_only_where_a_text_may_differ() -> None:
    for same_bits, identical, shown in ((True, 2, False), (True, 1, True), (False, 2, True)):
        ways = {"group": {"none": {"identical": identical, "runs": 2}}}
        notes = decoding_notes({"target": {"same_bits": same_bits}, "summary": ways})
        assert ("near-tie" in " ".join(notes)) is shown


def test_summary_of_a_prompt_set() -> None:
    runs = [
        run_row("none", 11, 10, 10.0),
        run_row("none", 21, 20, 20.0),
        run_row("hybrid", 11, 5, 5.0, speed_up=2.0),
        run_row("hybrid", 21, 10, 20.0, identical=False, near_tie_gap=0.01),
    ]
    found = summarize(runs, ("none", "hybrid"))
    assert list(found) == ["code"]
    hybrid = found["code"]["hybrid"]
    assert hybrid["speed_up_median"] == 1.5
    assert hybrid["speed_up_least"] == 1.0
    assert hybrid["speed_up_total_time"] == pytest.approx(30 / 25)
    assert hybrid["speed_up_with_prompt_pass"] == pytest.approx(32 / 27)
    assert hybrid["mean_generated_length"] == 2.0
    assert hybrid["accepted_by_source"] == {"datastore+prompt-lookup": 4, "datastore": 2}
    assert hybrid["draft_time_share"] == pytest.approx(0.3)
    assert (hybrid["identical"], hybrid["runs"], hybrid["largest_near_tie_gap"]) == (1, 2, 0.01)
    assert hybrid["disagreements_per_100k_tokens"] == 1e5 / 32
    assert hybrid["milliseconds_a_step"]["draft"] == pytest.approx(2500 / 15)
    assert found["code"]["none"]["mean_generated_length"] == 1.0


def test_answers_of_one_token_have_no_rate() -> None:
    """Regression: answers of one token used to count as 0 tokens a second, which lowered the median."""
    single = run_row("none", 1, 0, 1.0) | {"decode_seconds": 0.0, "tokens_per_second": 0.0}
    summary = summarize([single, single, run_row("none", 11, 10, 5.0)], ("none",))["code"]["none"]
    assert summary["tokens_per_second_median"] == 2.0
    assert summarize([single], ("none",))["code"]["none"]["tokens_per_second_median"] is None


def test_tokens_of_the_prompt_pass_do_not_count() -> None:
    """Regression: tokens accepted in the prompt pass of transformers used to count, but the time of that pass did not."""
    [found] = summarize([run_row("rival", 31, 5, 5.0, first_tokens=11)], ("rival",))["code"].values()
    assert found["tokens_per_second_total"] == 20 / 5.0
    assert found["mean_generated_length"] == 20 / 5


def test_the_demonstration_reports_a_busy_machine() -> None:
    def runs(*rates: float) -> list[dict[str, object]]:
        drafted = {"drafter": "hybrid", "tokens_per_second": 99.0}
        return [drafted, *({"drafter": "none", "tokens_per_second": rate} for rate in rates)]

    assert busy(runs(8.0, 16.0, 0.0)) == []  # 0.0: an answer of one token, which comes from the prompt pass
    assert busy(runs()) == []
    assert busy(runs(8.0, 11.0, 16.5)) == [
        "this machine was busy: plain decoding varied from 8.0 to 16.5 tokens/s; run it again when it is quiet"
    ]
