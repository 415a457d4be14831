"""Tests ``suffolk bench`` as a command: its documentation, its seed, and its helper processes."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from suffolk.cli.commands import COMMANDS
from suffolk.cli.main import main as suffolk
from suffolk.serving.decoding.engine.sampling.settings import MAX_SEED

GUIDE = Path(__file__).parents[2] / "benchmarks" / "README.md"
NONE = "./no-such-folder/x"
MODEL, PROMPTS = ("--model", NONE), ("--prompts", NONE)
MEASUREMENTS = {
    "batch": (*MODEL, *PROMPTS),
    "build": ("--tokenizer", NONE, NONE),
    "counts": (NONE,),
    "decode": (*MODEL, *PROMPTS),
    "live": (NONE,),
    "agents": (*MODEL, "--files", NONE),
    "memory": (NONE,),
    "prediction": (*MODEL, "--files", NONE),
    "retrieval": (NONE,),
    "rollouts": (*MODEL, *PROMPTS),
    "service": (NONE,),
    "worker": (*MODEL, *PROMPTS),
}


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_a_seed_out_of_range_is_one_line_of_suffolk_bench(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert suffolk(["bench", name, *MEASUREMENTS[name], "--seed", "-1"]) == 2
    assert capsys.readouterr().err == f"suffolk: --seed is -1; it must be between 0 and {MAX_SEED}\n"


def test_the_guide_names_every_measurement() -> None:
    assert {f"bench {name}" for name in MEASUREMENTS} == {name for name in COMMANDS if name.startswith("bench ")}
    guide = GUIDE.read_text()
    assert not [name for name in MEASUREMENTS if f"| `{name} " not in guide]


@pytest.mark.parametrize("words", [["--help"], []])
def test_helper_processes_name_the_command_that_starts_them(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["processes", *words])
    monkeypatch.delitem(sys.modules, "suffolk.benchmarks.processes", raising=False)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("suffolk.benchmarks.processes", run_name="__main__")
    assert ended.value.code == 2
    assert capsys.readouterr().err == "error: this runs helper processes of 'suffolk bench'; run that command\n"
