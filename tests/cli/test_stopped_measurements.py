"""After Ctrl-C, ``bench decode``, ``bench batch`` and ``replay`` report finished parts, and mark the report as partial."""

from __future__ import annotations

import itertools
import json
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from suffolk.benchmarks.batch import measure as batches
from suffolk.benchmarks.decode.way import Way
from suffolk.cli.bench import report_options
from suffolk.cli.main import main
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.cost_store import CostKey, save_costs
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.replay.replayer import Replayer
from tests.support import forked
from tests.support.interrupts import default_interrupts
from tests.support.processes import WAIT
from tests.support.tiny_models import save_tiny

pytest.importorskip("matplotlib")
PROMPTS = ("abcabcabcabc", "def f(x):\n    return x\n" * 3, "one two one two", "x = y\n" * 5)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def words(model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The arguments of a measurement with the model, four prompts and two methods."""
    folder = tmp_path_factory.mktemp("inputs")
    save_costs(CostModel([1, 2, 64], [1.0, 1.01, 1.5]), CostKey.of(Target.load(str(model))), folder / "costs.json")
    (folder / "p.jsonl").write_text("".join(json.dumps({"prompt": each}) + "\n" for each in PROMPTS))
    found = ["--model", model, "--prompts", folder / "p.jsonl", "--set", f"costs={folder / 'costs.json'}"]
    return [*map(str, found), "--max-new-tokens", "12", "--ignore-eos", "--drafters", "prompt-lookup"]


@pytest.fixture(scope="module")
def recording(words: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of the four prompts with their answers."""
    folder = tmp_path_factory.mktemp("recordings")
    path = folder / "day.jsonl"
    options = ["--drafters", "none", "--record", str(path), "--json", str(folder / "x.json")]
    assert main(["bench", "decode", *words, *options]) == 0
    return path


@pytest.fixture(autouse=True)
def _heeded() -> Iterator[None]:
    with default_interrupts():
        yield


def interrupt(patch: pytest.MonkeyPatch, owner: object, name: str, call: int) -> None:
    """Raise SIGINT in call number ``call`` of ``owner.name``."""
    usual, numbers = getattr(owner, name), itertools.count(1)

    def interrupted(*args: Any, **options: Any) -> Any:
        if next(numbers) == call:
            signal.raise_signal(signal.SIGINT)
        return usual(*args, **options)

    patch.setattr(owner, name, interrupted)


def stopped_process(arguments: Sequence[object], line: str) -> tuple[int, str, str]:
    """Send SIGINT to a process when ``line`` appears on its stderr; return exit code, output and remaining stderr."""
    process = forked.start(*map(str, arguments), function="tests.support.eager_progress:main")
    try:
        seen = []
        for each in process.stderr:
            seen.append(each)
            if line in each:
                break
        process.send_signal(signal.SIGINT)
        shown, errors = process.communicate(timeout=WAIT)
        assert any(line in each for each in seen), seen
        assert process.returncode is not None
        return process.returncode, shown, errors
    finally:
        process.kill()


def test_decode_reports_the_prompts_that_are_done(words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "decode.json"
    command = ["bench", "decode", *words, "--rounds", 50_000, "--json", path]  # a full run would take hours
    code, shown, errors = stopped_process(command, "7 of 200,000, ")
    assert code == 130, errors
    assert "Traceback" not in errors
    results = json.loads(path.read_text())["results"]
    done = results["stopped"]["done"]
    assert results["stopped"] == {"done": done, "of": 200_000, "unit": "prompts in 50,000 rounds"}
    assert done >= 7
    assert shown.startswith(f"stopped after {done:,} of 200,000 prompts in 50,000 rounds\nprompts, drafter")
    assert {name: each["runs"] for name, each in results["summary"]["p"].items()} == {
        "none": done,
        "prompt-lookup": done,
    }
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_batch_reports_the_sizes_that_all_ways_have_run(words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "batch.json"
    command = ["bench", "batch", *words, "--batches", 1, 2, "--rounds", 50_000, "--json", path]
    code, shown, errors = stopped_process(command, "3 of 100,000, ")
    assert code == 130, errors
    results = json.loads(path.read_text())["results"]
    done = results["stopped"]["done"]
    assert results["stopped"] == {"done": done, "of": 100_000, "unit": "batch sizes in 50,000 rounds"}
    assert done >= 3
    assert shown.startswith(f"stopped after {done:,} of 100,000 batch sizes in 50,000 rounds\nbatch, drafter")
    turns = {"1": (done + 1) // 2, "2": done // 2}
    requests = {
        size: {way: each["requests"] for way, each in ways.items()} for size, ways in results["batches"].items()
    }
    assert requests == {
        size: dict.fromkeys(("none", "prompt-lookup"), len(PROMPTS) * count) for size, count in turns.items()
    }


def test_replay_reports_the_replays_that_are_done(recording: Path, tmp_path: Path) -> None:
    path = tmp_path / "replay.json"
    sizes = [*range(1, 1025)] * 20
    command = ["replay", recording, "--json", path, "--nodes", *sizes]
    code, shown, errors = stopped_process(command, "9 of 81,920, ")
    assert code == 130, errors
    report = json.loads(path.read_text())
    done = report["stopped"]["done"]
    assert report["stopped"] == {"done": done, "of": len(sizes), "unit": "replays"}
    assert done >= 2
    assert shown.startswith(f"stopped after {done:,} of 20,480 replays\ndrafter")
    assert [(row["nodes"], row["texts"]) for row in report["results"]] == [(size, 4) for size in sizes[:done]]


@pytest.mark.parametrize(
    ("name", "owner", "runner", "call", "stopped", "counts"),
    [
        ("decode", Way, "begin", 8, (2, 4, "prompts"), ("summary", "p", "runs", 2)),
        ("batch", batches, "run_batch", 7, (2, 3, "batch sizes"), ("batches", "1", "requests", 6)),
    ],
)
def test_what_only_one_way_has_done_is_left_out(
    name: str,
    owner: object,
    runner: str,
    call: int,
    stopped: tuple[int, int, str],
    counts: tuple[str, str, str, int],
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The signal comes after the warm-up, two parts with two methods each, and the first method of the third part.

    The third part is left out. Both methods of ``decode`` warm up, one of ``batch``.
    """
    interrupt(monkeypatch, owner, runner, call)
    path = tmp_path / "x.json"
    sizes = ["--batches", "1", "2", "3"] if name == "batch" else []
    assert main(["bench", name, *words, *sizes, "--json", str(path)]) == 130
    done, of, unit = stopped
    assert f"stopped after {done} of {of} {unit}\n" in capsys.readouterr().out
    results = json.loads(path.read_text())["results"]
    assert results["stopped"] == {"done": done, "of": of, "unit": unit}
    table, part, field, value = counts
    assert {way: each[field] for way, each in results[table][part].items()} == {"none": value, "prompt-lookup": value}
    assert list(results[table]) == (["1", "2"] if name == "batch" else ["p"])
    assert path.with_suffix(".png").exists()


def test_a_comparison_of_outputs_that_is_stopped_costs_its_own_size_alone(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: outputs are compared after all runs, and Ctrl-C during the comparison used to discard the runs.

    At the first batch size, the outputs of one method are compared with plain decoding. At a further size, those of both are.
    """
    interrupt(monkeypatch, batches, "first_difference", 3 * len(PROMPTS))
    path = tmp_path / "x.json"
    sizes = ["--batches", "1", "2", "3", "--rounds", "1"]
    assert main(["bench", "batch", *words, *sizes, "--json", str(path)]) == 130
    assert "stopped after 1 of 3 batch sizes\n" in capsys.readouterr().out
    results = json.loads(path.read_text())["results"]
    assert list(results["batches"]) == ["1"]
    assert results["near_ties"]["tokens_compared"] == results["batches"]["1"]["none"]["requests"] * 12


def replayed(path: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """Return the figures of each replay that do not depend on time."""
    rows = json.loads(path.read_text())["results"]
    found = {(row.pop("drafter"), row.pop("nodes")): row for row in rows}
    for row in found.values():
        assert row.pop("replayed_tokens_per_second") > 0
    return found


def test_a_replay_stopped_half_way_does_not_stand_beside_whole_ones(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, whole = tmp_path / "x.json", tmp_path / "whole.json"
    assert main(["replay", str(recording), "--nodes", "8", "--json", str(whole)]) == 0
    assert json.loads(whole.read_text())["stopped"] is None
    interrupt(monkeypatch, Replayer, "replay", len(PROMPTS) + 3)
    assert main(["replay", str(recording), "--nodes", "8", "16", "--json", str(path)]) == 130
    assert "stopped after 1 of 2 replays\n" in capsys.readouterr().out
    assert replayed(path) == replayed(whole)


def test_the_first_replay_counts_as_far_as_it_came(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, two, first = tmp_path / "x.json", tmp_path / "two.jsonl", tmp_path / "two.json"
    two.write_text("".join(recording.read_text().splitlines(keepends=True)[:2]))
    assert main(["replay", str(two), "--nodes", "8", "--json", str(first)]) == 0
    interrupt(monkeypatch, Replayer, "replay", 3)
    assert main(["replay", str(recording), "--nodes", "8", "16", "--json", str(path)]) == 130
    assert "stopped after 2 of 4 texts with prompt-lookup, 8 nodes\n" in capsys.readouterr().out
    assert json.loads(path.read_text())["stopped"] == {"done": 2, "of": 4, "unit": "texts with prompt-lookup, 8 nodes"}
    assert replayed(path) == replayed(first)


def test_nothing_measured_is_said_and_nothing_written(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupt(monkeypatch, Way, "begin", 3)
    path = tmp_path / "x.json"
    assert main(["bench", "decode", *words, "--json", str(path)]) == 130
    printed = capsys.readouterr()
    assert printed.err == "suffolk: interrupted before the first of 4 prompts was finished\n"
    assert not printed.out
    assert not [*tmp_path.iterdir()]


def test_a_second_interrupt_ends_the_report(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupt(monkeypatch, Way, "begin", 8)
    interrupt(monkeypatch, report_options, "write_report", 1)
    assert main(["bench", "decode", *words, "--json", str(tmp_path / "x.json")]) == 130
    printed = capsys.readouterr()
    assert printed.out.startswith("stopped after 2 of 4 prompts\n")
    assert printed.err.endswith("suffolk: interrupted\n")
    assert not [*tmp_path.iterdir()]
