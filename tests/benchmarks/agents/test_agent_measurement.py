"""Tests the measurement of agents on a tiny model: turns of sessions, equal answers, and the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from suffolk.benchmarks.agents.measure import edited_file
from suffolk.cli.main import main
from tests.support.measurements import read_report, result_files


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    (folder / "a.py").write_text("\n".join(f"value_{place} = {place}" for place in range(12)))
    return folder


def measured(model: Path, files: Path, path: Path, *words: str) -> int:
    fixed = [
        "--model",
        str(model),
        "--files",
        str(files),
        "--lines",
        "4",
        "--max-new-tokens",
        "24",
        *result_files(path),
    ]
    return main(["bench", "agents", *fixed, *words])


def test_every_method_generates_the_same_answers(
    model: Path, files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "agents.json"
    assert measured(model, files, path, "--sessions", "3", "--turns", "2") == 0
    results = read_report(path)["results"]
    assert len(results["runs"]) == 3 * 2 * 5  # sessions, turns, methods
    found = {(each["part"], each["way"]): each for each in results["summary"]}
    assert found["all", "shared store"]["identical"] == found["all", "own store"]["identical"] == 6
    assert found["first sessions", "none"]["turns"] == 2
    assert found["later sessions", "none"]["turns"] == 4
    assert "shared store" in capsys.readouterr().out


def test_tasks_have_one_turn_and_their_file_is_the_prediction(model: Path, tmp_path: Path) -> None:
    rows = [
        {"id": name, "messages": [{"role": "user", "content": f"Make it {name}.\n\n```python\nx = '{name}'\n```"}]}
        for name in ("one", "two")
    ]
    tasks, path = tmp_path / "tasks.jsonl", tmp_path / "agents.json"
    tasks.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["--model", str(model), "--tasks", str(tasks), "--sessions", "2", "--max-new-tokens", "16"]
    assert main(["bench", "agents", *words, "--methods", "prediction", *result_files(path)]) == 0
    runs = read_report(path)["results"]["runs"]
    assert [(run["file"], run["session"], run["turn"]) for run in runs if run["way"] == "none"] == [
        (name, session, 1) for name in ("one", "two") for session in (1, 2)
    ]
    assert all(run["identical"] and run["rejected_prediction_tokens"] > 0 for run in runs if run["way"] == "prediction")


@pytest.mark.parametrize(("answer", "file"), [("```python\na = 1\n```\nDone.", "a = 1"), ("a = 1", "a = 1")])
def test_the_edited_file_is_the_code_of_the_answer(answer: str, file: str) -> None:
    assert edited_file(answer) == file


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--turns", "9"), "turns is 9; it must be between 1 and 4"),
        (("--sessions", "0"), "sessions is 0; it must be 1 or more"),
        (("--lines", "500"), "no .py file has 500 lines"),
        (("--tasks", "x.jsonl"), "--tasks"),
        (("--methods", "own"), "methods[0] is 'own'; it must be one of"),
    ],
)
def test_bad_settings_are_one_line(
    model: Path, files: Path, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert measured(model, files, tmp_path / "x.json", *words) == 2
    assert message in capsys.readouterr().err
