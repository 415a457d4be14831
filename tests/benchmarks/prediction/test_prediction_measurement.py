"""Tests the measurement of predicted texts on a tiny model: wrong lines, equal outputs, and the report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from suffolk.benchmarks.prediction.edits import corrupted
from suffolk.cli.main import main
from tests.support.measurements import read_report, result_files


@pytest.mark.parametrize(("share", "wrong"), [(0.0, 0), (0.05, 1), (0.2, 4), (1.0, 20)])
def test_a_share_of_the_lines_is_replaced(share: float, wrong: int) -> None:
    lines = [f"line {place}\n" for place in range(20)]
    found = corrupted("".join(lines), ["a\nb\n", lines[0]], share, np.random.default_rng(0)).splitlines(keepends=True)
    assert [after in ("a\n", "b\n") for after in found] == [
        before != after for before, after in zip(lines, found, strict=True)
    ]
    assert sum(before != after for before, after in zip(lines, found, strict=True)) == wrong


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    for name in ("a.py", "b.py", "short.py"):
        lines = [f"value_{name[0]}{place} = {place}" for place in range(3 if name == "short.py" else 12)]
        (folder / name).write_text("\n".join(lines))
    return folder


def test_predictions_are_measured(model: Path, files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "prediction.json"
    words = [
        "--model",
        str(model),
        "--files",
        str(files),
        "--lines",
        "10",
        "--max-new-tokens",
        "30",
        "--shares",
        "0",
        "1",
    ]
    assert main(["bench", "prediction", *words, *result_files(path)]) == 0
    results = read_report(path)["results"]
    assert {run["prompt"] for run in results["runs"]} == {"a.py", "b.py"}
    names = [f"{drafter}, {share} wrong" for drafter in ("prediction", "prompt-lookup") for share in ("0%", "100%")]
    assert set(results["summary"]) == {*names, "prompt-lookup, no prediction"}
    for each in results["summary"].values():
        assert (each["runs"], each["identical"]) == (2, 2)
    rejected = [
        results["summary"][f"prediction, {share} wrong"]["rejected_prediction_share"] for share in ("0%", "100%")
    ]
    assert 0 <= rejected[0] < rejected[1] <= 1
    assert "prediction, 100% wrong" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--shares", "1.5"), "--shares is 1.5; it must be between 0 and 1"),
        (("--lines", "0"), "lines is 0; it must be 1 or more"),
        (("--lines", "500"), "no .py file has 500 lines; name other --files or lower --lines"),
        (("--drafters", "none"), "drafters: none is plain decoding, which is always measured"),
        (("--drafters", "magic"), "drafter is 'magic'; it must be one of"),
    ],
)
def test_bad_settings_are_one_line(
    model: Path, files: Path, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fixed = ["--model", str(model), "--files", str(files), "--lines", "10", "--json", str(tmp_path / "x.json")]
    assert main(["bench", "prediction", *fixed, *words]) == 2
    assert message in capsys.readouterr().err


def test_missing_files_are_one_line(model: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["--model", str(model), "--files", str(tmp_path / "none"), "--json", str(tmp_path / "x.json")]
    assert main(["bench", "prediction", *words]) == 2
    assert "there is no such file or folder" in capsys.readouterr().err
