"""Benchmarks as commands: what they say of themselves, and that a mistake is one line and exit code 2."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch

NONE = "./no-such-folder/x"
MODEL, PROMPTS, STORE = ("--model", NONE), ("--prompts", NONE), ("--datastore", NONE)
EVIDENCE = ("--recording", NONE, *STORE)
MISTAKES = {
    "acceptance": (*MODEL, *PROMPTS, *STORE),
    "compiled_passes": (*MODEL, "--rounds", "1"),
    "coupling": MODEL,
    "delayed_server": (NONE,),
    "enlarge_corpus": ("--copies", "2", "--output", "out", NONE),
    "fit_merge": (*EVIDENCE, *MODEL),
    "fit_noise": EVIDENCE,
    "fit_priors": EVIDENCE,
    "gpu": (*MODEL, *PROMPTS),
    "one_tree": (*MODEL, *PROMPTS, "--output", "out"),
    "overlap": (*PROMPTS, *STORE),
    "recorded_answers": (*MODEL, *PROMPTS, "--output", "out.jsonl"),
    "remote_overlap": (NONE, *MODEL, *PROMPTS, "--delays-ms", "-1"),
    "replay": (*MODEL, *PROMPTS),
    "row_linear": (*MODEL, "--rounds", "1"),
    "tree_attention": ("--rounds", "0"),
    "tuning_prompts": ("--output", "file/x"),
    "unrelated_corpus": ("--output", "file/x", "--megabytes", "0.001"),
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where mistakes are made: a file stands where some want a folder. No device is there."""
    (tmp_path / "file").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_every_benchmark_with_a_help_is_here() -> None:
    folder = Path(__file__).parents[2] / "benchmarks"
    names = {path.stem for path in folder.glob("*.py") if "run_command(" in path.read_text()} - {"command"}
    assert names == set(MISTAKES)
    assert not [
        path for path in folder.glob("*.py") if "ArgumentParser(" in path.read_text() and path.stem != "command"
    ]


@pytest.mark.parametrize("name", MISTAKES)
def test_help_has_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"benchmarks.{name}").main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: python -m benchmarks.{name} ")
    assert f"  python -m benchmarks.{name} " in shown[shown.index("\nexample") :]


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    try:
        assert importlib.import_module(f"benchmarks.{name}").main(MISTAKES[name]) == 2
    finally:
        torch.set_num_threads(threads)
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
