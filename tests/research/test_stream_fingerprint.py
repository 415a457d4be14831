"""Tests which packets an observer sees, and how many prompts they identify."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from research.stream_fingerprint import main, named, one_by_one, send
from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from tests.support.worker_server import talking_target, working

STEPS = [[3], [1, 4], [2], [5, 1, 1], [2]]


def test_packets_are_steps_without_an_interval() -> None:
    stream = send(STEPS, 0.0, 0.04)
    assert stream.packets == [(1, 3), (2, 5), (1, 2), (3, 7), (1, 2)]
    assert stream.delay == 0


def test_an_interval_joins_steps_and_delays_them() -> None:
    stream = send(STEPS, 0.1, 0.04)  # sent after steps 1, 4 and, as it is the last, 5
    assert stream.packets == [(1, 3), (6, 14), (1, 2)]
    assert stream.delay == pytest.approx((2 * 0.08 + 0.04) / 8)


def test_plain_decoding_shows_no_accepted_tokens() -> None:
    assert {tokens for tokens, _ in send(one_by_one(STEPS), 0.0, 0.04).packets} == {1}
    assert sum(size for _, size in send(one_by_one(STEPS), 0.0, 0.04).packets) == sum(map(sum, STEPS))


def test_distinct_sizes_name_the_prompt_and_equal_ones_do_not() -> None:
    assert named([[[1, 2, 3], [1, 2, 4]], [[9, 9], [9, 8]], [[5], [6]]]) == 1.0
    assert named([[[1, 1], [1, 1]]] * 4) == 0.25


def test_the_study_reads_the_steps_of_a_worker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p.jsonl"
    rows = [{"messages": [{"role": "user", "content": each * 9}]} for each in ("ab", "cde", "fghi")]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    target = talking_target()
    with working(target, {"prompt-lookup": PromptLookupDrafter(target.vocab_size)}) as server:
        words = ["--runs", "2", "--tokens", "20", "--streams", "2", "--temperatures", "0.3", "--intervals", "0", "200"]
        out = str(tmp_path / "out.json")
        assert main(["--worker", str(server.http), "--prompts", str(file), *words, "--json", out]) == 0
    assert "by chance: 0.333" in capsys.readouterr().out
    found = json.loads(Path(out).read_text())
    assert all(sum(map(len, steps)) <= 20 for runs in found["steps"]["0.3"] for steps in runs)
    packets = {(row["drafts"], row["interval_ms"]): row["packets"] for row in found["rows"]}
    assert packets["worker's", 200] < packets["worker's", 0] <= packets["none", 0]
