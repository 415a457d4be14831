"""Tests studies as commands: their help, and errors on one line with exit code 2."""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from research.command import add_drafter_options, alternating, read_drafter_config, run_command
from suffolk.serving.decoding.engine.sampling.settings import MAX_SEED

ROOT = Path(__file__).parents[2]
NONE = "./no-such-folder/x"
MODEL, PROMPTS, STORE = ("--model", NONE), ("--prompts", NONE), ("--datastore", NONE)
EVIDENCE = ("--recording", NONE, *STORE)
MISTAKES = {
    "acceptance": (*MODEL, *PROMPTS, *STORE),
    "compare_results": ("none.json", "none.json"),
    "compare_commits": (".", ".", *MODEL, *PROMPTS),
    "compare_stores": (".", ".", "--tokenizer", NONE, "--corpus", NONE),
    "compiled_passes": (*MODEL, "--rounds", "1"),
    "coupling": MODEL,
    "delayed_server": (NONE,),
    "draft_latency": (NONE, "--contexts", NONE, "--json", "latency.json"),
    "edit_tasks": (NONE,),
    "enlarge_corpus": ("--copies", "2", "--output", "out", NONE),
    "fit_noise": EVIDENCE,
    "fit_prediction": ("--repository", NONE, "--tokenizer", NONE),
    "fit_priors": EVIDENCE,
    "hot_swap": (NONE,),
    "gpu": (*MODEL, *PROMPTS),
    "live_replay": (NONE,),
    "overlap": (*PROMPTS, *STORE),
    "prefetching": (NONE, NONE),
    "storage": (NONE,),
    "capacity_check": (NONE, "--profile", NONE),
    "cluster_faults": (*MODEL, "--store", NONE),
    "fan_out": (NONE,),
    "soak": ("--minutes", "1", "--warmup", "2"),
    "prefix_reuse": MODEL,
    "policy_speed": (NONE, *STORE, "--costs", "135m-fp32"),
    "record_answers": (*MODEL, *PROMPTS, "--output", "out.jsonl"),
    "plot_speed_by_set": (NONE, "x.png"),
    "replication_faults": ("--minutes", "0"),
    "replication_lag": ("grpc://127.0.0.1:1/x",),
    "remote_overlap": (NONE, *MODEL, *PROMPTS, "--delays-ms", "-1"),
    "replay": (*MODEL, *PROMPTS),
    "sglang_trie": ("--wheel", NONE, *EVIDENCE),
    "simulated_device.bars": (NONE, *STORE, "--known", NONE),
    "simulated_device.ranges": (NONE, *STORE, "--known", NONE),
    "skinny_gemm": (*MODEL, "--rounds", "1"),
    "exact_cost": (*MODEL, "--rounds", "1"),
    "same_bits": (*MODEL, "--text", NONE),
    "same_texts": (*MODEL, *PROMPTS, *STORE),
    "split_attention": (*MODEL, "--rounds", "1"),
    "stream_fingerprint": ("--worker", "127.0.0.1:1", *PROMPTS),
    "tenant_fairness": (NONE,),
    "tuning_prompts": ("--output", "file/x"),
    "unrelated_corpus": ("--output", "file/x", "--megabytes", "0.001"),
    "victim_latency": MODEL,
    "waiting_threads": (*MODEL, "--busy", "-1"),
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder for mistakes: a file is in place of a folder, and there is no CUDA device."""
    (tmp_path / "file").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_every_study_with_a_help_is_listed() -> None:
    folder = ROOT / "research"
    files = {path: path.read_text() for path in folder.rglob("*.py") if path.stem not in ("command", "__main__")}
    found = [path.relative_to(folder).with_suffix("") for path, text in files.items() if "run_command(" in text]
    assert {".".join(path.parts) for path in found} == set(MISTAKES)
    assert not [path for path, text in files.items() if "ArgumentParser(" in text]


@pytest.mark.parametrize("name", MISTAKES)
def test_help_has_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"research.{name}").main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: python -m research.{name} ")
    assert f"  python -m research.{name} " in shown[shown.index("\nexample") :]


@pytest.mark.parametrize("name", MISTAKES)
def test_every_option_has_a_help_text(name: str) -> None:
    options = importlib.import_module(f"research.{name}")._parser()._actions
    assert not [each.option_strings or each.dest for each in options if not each.help]


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    try:
        assert importlib.import_module(f"research.{name}").main(MISTAKES[name]) == 2
    finally:
        torch.set_num_threads(threads)
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("fit_priors", ("--ridge", "nan")),
        ("fit_priors", ("--ridge", "-1")),
        ("overlap", ("--drop", "no-such-folder/x")),
        ("replay", ("--noise", "-1")),
        ("coupling", ("--json", "x.png")),
    ],
)
def test_impossible_values_are_rejected_at_the_start(
    name: str, wrong: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: some values used to cause a traceback, or an error after the whole measurement.

    One plot overwrote the results.
    """
    assert importlib.import_module(f"research.{name}").main((*MISTAKES[name], *wrong)) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {wrong[0]} ")


def ending(work: Callable[[argparse.Namespace], int]) -> int:
    return run_command(argparse.ArgumentParser(), work, [])


def raising(error: BaseException) -> Callable[[argparse.Namespace], int]:
    def work(args: argparse.Namespace) -> int:
        print("half of a table")
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "code", "lines"),
    [
        (KeyboardInterrupt(), 130, ["error: interrupted"]),
        (
            OSError(28, "No space left on device", "x.json"),
            2,
            ["error: [Errno 28] No space left on device: 'x.json'; check the path, its permissions and the free space"],
        ),
        (BrokenPipeError(), 141, []),
    ],
)
def test_every_error_is_one_line(
    error: BaseException, code: int, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert ending(raising(error)) == code
    assert capsys.readouterr().err.splitlines() == lines


def test_output_before_a_file_error_is_not_lost() -> None:
    work = """
import argparse, sys
from research.command import run_command
def work(args):
    print("a table")
    raise OSError(28, "No space left on device")
sys.exit(run_command(argparse.ArgumentParser(), work, []))
"""
    done = subprocess.run([sys.executable, "-c", work], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "a table\n")


SEEDED = {
    "acceptance": (*MODEL, *PROMPTS),
    "coupling": (),
    "record_answers": (*MODEL, *PROMPTS, "--output", "out.jsonl"),
    "replay": (*MODEL, *PROMPTS),
    "tuning_prompts": ("--output", "out"),
    "unrelated_corpus": ("--output", "out.jsonl", "--megabytes", "0.001"),
}


@pytest.mark.parametrize("seed", [-1, 1 << 63])
@pytest.mark.parametrize("name", SEEDED)
def test_a_seed_out_of_range_is_one_line(name: str, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert importlib.import_module(f"research.{name}").main([*SEEDED[name], "--seed", str(seed)]) == 2
    assert capsys.readouterr().err == f"error: --seed is {seed}; it must be between 0 and {MAX_SEED}\n"
    assert not [path for path in Path().iterdir() if path.name != "file"]


@pytest.mark.parametrize("name", ["compiled_passes", "coupling", "exact_cost", "replay", "split_attention"])
def test_results_without_a_folder_are_refused_before_anything_is_measured(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*MISTAKES[name], "--json", "none/x.json"]
    assert importlib.import_module(f"research.{name}").main(words) == 2
    refused = "error: --json none/x.json: there is no such folder; name a file in a folder that exists\n"
    assert capsys.readouterr().err == refused
    assert not Path("none").exists()


def test_the_guide_names_every_study() -> None:
    guide = (ROOT / "research" / "README.md").read_text()
    assert not [name for name in MISTAKES if f"| `{name}` |" not in guide]


def test_lists_are_empty_where_nothing_is_given() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", default="auto")
    add_drafter_options(parser)
    assert read_drafter_config(parser.parse_args([])).parts() == {}
    given = read_drafter_config(parser.parse_args(["--head", "a", "--head", "b", "--draft-model", "c"]))
    assert given.options == {"head": [Path("a"), Path("b")], "draft_model": "c"}


def test_groups_alternate() -> None:
    names = ["a1", "a2", "a3", "b1", "c1", "c2"]
    assert alternating(names, lambda name: name[0]) == ["a1", "b1", "c1", "a2", "c2", "a3"]
