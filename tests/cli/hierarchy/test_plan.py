"""Tests ``suffolk hierarchy plan``: the example of its help, the guide plan-a-hierarchy.md, and errors on one line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from suffolk.cli.hierarchy.plan import RATES
from suffolk.cli.main import main

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "plan-a-hierarchy.md"


def blocks(kind: str) -> list[str]:
    """Return the guide's code blocks of one language."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def rates(tmp_path: Path) -> Path:
    """The guide's file of rates."""
    (content,) = blocks("json")
    (tmp_path / "rates.json").write_text(content)
    return tmp_path / "rates.json"


def test_the_guide_shows_what_is_printed(rates: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hierarchy", "plan", "--rates", str(rates)]) == 0
    (shown,) = blocks("text")
    assert capsys.readouterr().out == shown


def test_the_guides_python_runs(
    rates: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(rates.parent)
    (code,) = blocks("python")
    exec(compile(code, str(GUIDE), "exec"), {})  # noqa: S102
    assert capsys.readouterr().out.splitlines() == re.findall(r"# -> (.*)", code)


def test_the_result_as_json(rates: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hierarchy", "plan", "--rates", str(rates), "--json", "--depth", "4"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["plan"] in result["by_levels"]
    assert [len(each["names"]) for each in result["by_levels"]] == [1, 2, 3, 4, 5, 6]
    assert result["by_levels"][0] == {
        "names": ["m6"], "lengths": [], "seconds": 0.033, "speedup": 1.0, "tokens": 1.0, "objective": 0.033,
    }  # fmt: skip
    assert max(length for each in result["by_levels"] for length in each["lengths"]) == 4


def test_the_example_of_the_help_is_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rates.json").write_text(RATES)
    assert main(["hierarchy", "plan", "--help"]) == 0
    assert " ".join(RATES.split()) in " ".join(capsys.readouterr().out.split())
    assert main(["hierarchy", "plan", "--rates", str(tmp_path / "rates.json")]) == 0
    assert "plan: datastore:4 > layer-8:5 > target\n" in capsys.readouterr().out


def test_plain_decoding_is_a_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rates.json").write_text('{"levels": [{"name": "target", "seconds": 0.02}], "acceptance": [[null]]}')
    assert main(["hierarchy", "plan", "--rates", str(tmp_path / "rates.json")]) == 0
    assert capsys.readouterr().out.startswith("plan: decode with target only, 20 ms a token; no hierarchy is faster\n")


@pytest.mark.parametrize("levels", [1, 2])
def test_control_characters_of_names_are_escaped(
    levels: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = [{"name": "small\x1b[2J", "seconds": 0.001}, {"name": "target\x1b]0;x\x07", "seconds": 0.02}][-levels:]
    rates = {"levels": named, "acceptance": [[None, 0.9], [None, None]] if levels == 2 else [[None]]}
    (tmp_path / "rates.json").write_text(json.dumps(rates))
    assert main(["hierarchy", "plan", "--rates", str(tmp_path / "rates.json")]) == 0
    shown = capsys.readouterr().out
    assert "target\\x1b]0;x\\x07" in shown
    assert all(each.isprintable() or each == "\n" for each in shown)


@pytest.mark.parametrize(
    ("changes", "words", "message"),
    [
        ({}, ["--depth", "0"], "suffolk: --depth is 0; it must be between 1 and 256\n"),
        ({"levels": []}, [], "levels are 0; give 1 to 256"),
        (
            {"rate": 1},
            [],
            "rates.json: unknown key 'rate'; the keys are levels, acceptance, runs",
        ),
        ({"acceptance": [[2] * 6] * 6}, [], "acceptance[0][0] is 2.0; it must be between 0 and 1, or null"),
    ],
)
def test_bad_input_is_one_line(
    changes: dict[str, Any], words: list[str], message: str, rates: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rates.write_text(json.dumps(json.loads(rates.read_text()) | changes))
    assert main(["hierarchy", "plan", "--rates", str(rates), *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["--rounds", "5"],
        ["--save-rates", "other.json"],
        ["--stack", "prompt-lookup:4"],
        ["--model", "folder"],
        ["--exit", "8"],
        ["--device", "cpu"],
    ],
)
def test_rates_and_options_of_measuring_are_refused(
    words: list[str], rates: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["hierarchy", "plan", "--rates", str(rates), *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"suffolk: {words[0]} has no effect without --measure; leave it out")
    assert error.count("\n") == 1


@pytest.mark.parametrize(("name", "message"), [("none.json", "No such file"), ("", "Is a directory")])
def test_a_file_that_cannot_be_read_is_one_line(
    name: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["hierarchy", "plan", "--rates", str(tmp_path / name)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_planning_loads_no_torch() -> None:
    code = "import sys, suffolk.cli.hierarchy.plan; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
