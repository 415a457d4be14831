"""Tests ``suffolk train``: its options, its output, and errors on one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from suffolk.cli.main import main
from tests.support.linear_head import write_corpus
from tests.support.tiny_models import save_tiny


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("train")
    save_tiny(folder / "model")
    write_corpus(folder / "corpus.jsonl")
    return folder


def command(place: Path, output: Path, *words: str, head: str = "linear") -> list[str]:
    return [
        "train", head, "--model", str(place / "model"), "--corpus", str(place / "corpus.jsonl"), "--output", str(output),
        "--window", "40", "--held-out", "0.2", "--steps", "4", *words,
    ]  # fmt: skip


def test_a_head_is_trained(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "--set",
        "feature_cache=1M",
        "--set",
        "head_option.dropout=0.1",
        "--set",
        "evaluate_every=2",
        "--set",
        "save_every=2",
    ]
    assert main(command(place, tmp_path / "head", *words)) == 0
    printed, notes = capsys.readouterr()
    assert "linear head of 4,160 parameters, 4 steps" in printed
    assert "held out: loss " in printed
    assert printed.endswith(f"wrote {tmp_path / 'head'}\n")
    assert "60 documents" not in notes
    assert "documents held out; 4 steps, depth 2" in notes
    assert "saved a checkpoint after step 2" in notes
    assert "step 4: held-out loss" in notes
    settings = json.loads((tmp_path / "head" / "training.json").read_text())["settings"]
    assert settings["cache_bytes"] == 1 << 20
    assert settings["head_options"] == {"dropout": 0.1}
    answers = ["--regenerate", "--set", "answer_max_new_tokens=8", "--dtype", "float32", "--set", "exact=bits"]
    assert main(command(place, tmp_path / "json", "--json", *answers)) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads((tmp_path / "json" / "training.json").read_text())
    assert found["settings"]["regenerate"]["max_new_tokens"] == 8


def test_a_trained_exit_drafts(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--set", "head_option.layers=1", "--set", "head_option.width=16"]
    assert main(command(place, tmp_path / "head", *words, head="early-exit")) == 0
    capsys.readouterr()
    report = tmp_path / "report.json"
    generate = [
        "generate",
        "--model",
        str(place / "model"),
        "--head",
        str(tmp_path / "head"),
        "--stats-json",
        str(report),
    ]
    assert main([*generate, "--max-new-tokens", "8", "--compare-plain", "abcabc"]) == 0
    assert "output identical = yes" in capsys.readouterr().err
    assert json.loads(report.read_text())["drafter"] == "hybrid"


@pytest.mark.parametrize(
    ("words", "head", "message"),
    [
        (
            ["--set", "head_option.depth=2"],
            "early-exit",
            "head early-exit: unknown key 'depth'; the keys are layers, width",
        ),
        (["--set", "head_option.layers=9"], "early-exit", "layers is 9; it must be 1 or more, and fewer than the 2 of"),
        ([], "medusa", "head is 'medusa'; it must be one of "),
        (["--window", "3"], "linear", "--window is 3; it must be between 8"),
        (["--held-out", "2"], "linear", "--held-out is 2.0; it must be between 0 and 0.5"),
        (
            ["--regenerate", "--set", "answer_max_new_tokens=0"],
            "linear",
            "answer_max_new_tokens is 0; it must be between 1 and 1048576",
        ),
        (["--set", "feature_cache=9999T"], "linear", "feature_cache is 10994016766132224; it must be between 0"),
        (["--set", "feature_cache=lots"], "linear", "feature_cache is 'lots'; it must be a size such as 500M"),
        (
            ["--set", "answer_temperature=1"],
            "linear",
            "answer_temperature has no effect without --regenerate; add that",
        ),
        (["--set", "head_option.x"], "linear", "--set 'head_option.x': write it as NAME=VALUE"),
        (["--set", "head_option.x=1"], "linear", "head linear: unknown key 'x'; the keys are"),
        (["--resume"], "linear", "nothing to go on with; leave --resume out"),
        (["--set", "head_option.breaks_at=2"], "linear", "step 2: the loss is nan; nothing was saved"),
        (["--set", "threads=0"], "linear", "threads is 0"),
    ],
)
def test_what_is_wrong_is_one_line_and_2(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], head: str, message: str
) -> None:
    assert main(command(place, tmp_path / "head", *words, head=head)) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("suffolk: ")
    assert message in error
    assert not list(tmp_path.iterdir())


def test_a_model_that_is_missing_is_one_line_and_2(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = command(place, tmp_path / "head")
    words[words.index("--model") + 1] = str(tmp_path / "none")
    assert main(words) == 2
    assert "model folder" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
