"""Tests fits to a model's recorded answers, and the overlap of their prompts with a datastore, as commands."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from research import fit_noise, fit_prediction, fit_priors, overlap, record_answers
from research.edits import read_edits
from tests.support.prompt_sets import make_prompt_sets


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_prompt_sets(tmp_path_factory.mktemp("fits"))


def recorded(folder: Path, output: Path, temperature: str) -> list[str]:
    """The options of a fit to answers at ``temperature``."""
    prompts = [str(folder / f"{group}.prompts.jsonl") for group in ("a", "b")]
    words = ["--model", str(folder / "model"), "--prompts", *prompts, "--max-new-tokens", "40"]
    assert record_answers.main([*words, "--temperature", temperature, "--output", str(output)]) == 0
    return ["--recording", str(output), "--datastore", str(folder / "store")]


def test_recorded_answers_fit_priors(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording = recorded(folder, tmp_path / "answers.jsonl", "0")
    assert fit_priors.main([*recording, "--json", str(tmp_path / "priors.json")]) == 0
    assert set(json.loads((tmp_path / "priors.json").read_text())["sources"]) == {"prompt-lookup", "datastore"}
    assert "prompt-lookup: Prior(constant=" in capsys.readouterr().out
    assert fit_priors.main(["--recording", str(tmp_path / "none.jsonl"), "--datastore", str(folder / "store")]) == 2


def test_sampled_answers_fit_the_noise_weights(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit_noise.main(recorded(folder, tmp_path / "drawn.jsonl", "1")) == 0
    assert "kConstant, kOdds, kNoise, kNoiseOdds = " in capsys.readouterr().out
    assert fit_noise.main(recorded(folder, tmp_path / "greedy.jsonl", "0")) == 2
    assert "no answer was sampled" in capsys.readouterr().err


def test_prompts_from_the_corpus_are_flagged(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drop = tmp_path / "drop.txt"
    prompts = [str(folder / "a.prompts.jsonl"), str(folder / "b.prompts.jsonl")]
    assert overlap.main(["--prompts", *prompts, "--datastore", str(folder / "store"), "--drop", str(drop)]) == 0
    assert drop.read_text().split() == ["a/0", "a/1", "a/2", "b/0", "b/1", "b/2"]
    assert overlap.main(["--prompts", *prompts, "--datastore", str(folder / "other"), "--drop", str(drop)]) == 0
    assert drop.read_text() == ""
    assert "flagged in total: 0 of 6 texts" in capsys.readouterr().out


def test_edits_fit_the_prior_of_predictions(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True)

    git("init", "-q")
    lines = [f"line {place}" for place in range(30)]
    for number in range(4):
        lines[7 * number] = f"changed {number}"
        (tmp_path / "a.py").write_text("\n".join([*lines, ""]))
        git("add", "a.py")
        git("commit", "-q", "-m", str(number))
    assert [each.path for each in read_edits(tmp_path, ".py", 2, 0)] == ["a.py"] * 2
    words = ["--repository", str(tmp_path), "--tokenizer", str(folder / "model")]
    assert fit_prediction.main([*words, "--json", str(tmp_path / "prior.json")]) == 0
    assert json.loads((tmp_path / "prior.json").read_text())["edits"] == 3
    assert "Prior(constant=" in capsys.readouterr().out
    assert fit_prediction.main([*words, "--suffix", ".cc"]) == 2
    assert "0 edits found" in capsys.readouterr().err
