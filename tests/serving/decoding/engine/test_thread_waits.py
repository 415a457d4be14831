"""Threads of torch sleep while other programs use the CPUs, and only one thread keeps a team."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.model import thread_waits
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.thread_waits import OtherPrograms, ThreadWaits
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.processes import ENVIRONMENT, ROOT, WAIT

_START = """
import os, time, torch
from suffolk.serving.decoding.engine.model import thread_waits
from suffolk.serving.decoding.engine.model.thread_waits import ThreadWaits, release_team
def count(): return len(os.listdir("/proc/self/task"))
def wait_for(threads):
    end = time.monotonic() + 60
    while count() != threads and time.monotonic() < end: time.sleep(0.01)
    return count() == threads
spare = max(0, len(os.sched_getaffinity(0)) - 2)
thread_waits.INTERVAL = 0.0
torch.ones(1 << 20)
"""


def run(script: str) -> str:
    """Run ``script`` in a process whose operations use two threads; returns what it prints."""
    environment = ENVIRONMENT | {"OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", _START + script],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_waits, "INTERVAL", 0.0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)


def test_threads_sleep_while_other_programs_take_their_cpus(always: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2})
    used = iter([1.4, 1.6, 1.4, 1.2, 1.4, 3.0])
    waits = ThreadWaits(used.__next__)
    found = []
    for _ in range(6):
        waits.update()
        found.append(waits.asleep)
    assert found == [False, True, True, False, False, True]


def test_a_single_thread_never_waits(always: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    waits = ThreadWaits(lambda: 100.0)
    waits.update()
    assert not waits.asleep


def test_a_second_team_lives_only_while_threads_sleep() -> None:
    script = """
used = iter([1.0, 0.0, 1.0])
waits = ThreadWaits(lambda: spare + next(used))
before = count()
for team in (2, 0, 2):
    waits.update()
    print(waits.asleep, wait_for(before + team))
del waits
print(wait_for(before))
"""
    assert run(script).split() == ["True", "True", "False", "True", "True", "True", "True"]


def test_a_released_team_ends_and_comes_back() -> None:
    script = """
before = count()
release_team()
print(wait_for(before - 1))
torch.ones(1 << 20)
print(wait_for(before))
"""
    assert run(script).split() == ["True", "True"]


def test_an_engine_releases_the_team_of_the_thread_that_makes_it() -> None:
    script = """
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.model.target import Target
from tests.support.tiny_models import tiny_model
target = Target.wrap(tiny_model())
torch.ones(1 << 20)
before = count()
with Engine(target, slots=1, capacity=100):
    print(wait_for(before))  # one thread more, and one less
"""
    assert run(script).split() == ["True"]


def test_a_pass_measures_the_other_programs(target: Target, always: None) -> None:
    calls = []
    waits = ThreadWaits(lambda: float(calls.append(None) is not None))
    with Engine(replace(target, waits=waits), slots=1, capacity=100) as engine:
        steps = list(engine.generate([1, 2, 3], SamplingSettings(max_new_tokens=5, min_tokens=5)))
    assert len(calls) == len(steps) == 5


def test_other_programs_are_all_but_this_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    monkeypatch.setattr(thread_waits, "_STAT", stat)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 2})
    now = SimpleNamespace(monotonic=lambda: 100.0, process_time=lambda: 1.0)
    monkeypatch.setattr(thread_waits, "time", now)
    ticks = os.sysconf("SC_CLK_TCK")

    def write(busy: int) -> None:
        numbers = f"{busy} {busy} {busy} 99999 99999 {busy} {busy} 99999 0 0"
        stat.write_text(f"cpu  {numbers}\ncpu0 {numbers}\ncpu1 {numbers}\ncpu2 {numbers}\nintr 1 2\n")

    write(ticks)
    programs = OtherPrograms()
    write(2 * ticks)
    now.monotonic, now.process_time = lambda: 110.0, lambda: 6.0
    assert programs.used() == pytest.approx((10 - 5) / 10)
    stat.unlink()
    now.monotonic = lambda: 120.0
    assert programs.used() == 0.0
