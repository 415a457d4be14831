"""Recorded answers are reused only for the same model, settings and room for tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

from research.one_tree import along_recordings as module
from research.one_tree.along_recordings import recorded_answers
from suffolk.benchmarks.prompts import Prompt
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.decoding.replay.recording import Recording
from tests.support.tiny_models import tiny_model

PROMPTS = [(Prompt("one", "a", ()), [1, 2, 3]), (Prompt("two", "a", ()), [4] * 20)]


@pytest.fixture(autouse=True)
def _no_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "load_tokenizer", lambda name: None)
    monkeypatch.setattr(module, "fingerprint", lambda tokenizer: None)


def make_target(name: str, seed: int = 0) -> Target:
    return Target.wrap(tiny_model(seed=seed, max_position_embeddings=30), name=name)


def ask(path: Path, target: Target, most: int) -> tuple[list[Recording], int]:
    """Return the answers, and the number of newly generated ones."""
    before = len(path.read_text().splitlines()) if path.exists() else 0
    found = recorded_answers(path, target, "", PROMPTS, SamplingSettings(most, ignore_eos=True))
    return found, len(path.read_text().splitlines()) - before


def test_recorded_answers_are_not_generated_again(tmp_path: Path) -> None:
    first, asked = ask(tmp_path / "a.jsonl", make_target("one"), 12)
    assert [len(each.generated) for each in first] == [12, 10]  # the context of 30 tokens limits the second answer
    assert asked == 2
    again, asked = ask(tmp_path / "a.jsonl", make_target("one"), 12)
    assert asked == 0
    assert [each.generated.tolist() for each in again] == [each.generated.tolist() for each in first]


def test_answers_with_another_token_limit_are_generated_again(tmp_path: Path) -> None:
    ask(tmp_path / "a.jsonl", make_target("one"), 4)
    longer, asked = ask(tmp_path / "a.jsonl", make_target("one"), 12)
    assert asked == 2
    assert [len(each.generated) for each in longer] == [12, 10]
    shorter, asked = ask(tmp_path / "a.jsonl", make_target("one"), 4)
    assert asked == 0
    assert [len(each.generated) for each in shorter] == [4, 4]
    _, asked = ask(tmp_path / "a.jsonl", make_target("one"), 14)
    assert asked == 1  # the second has the same room as before


def test_answers_of_another_model_are_generated_again(tmp_path: Path) -> None:
    first, _ = ask(tmp_path / "a.jsonl", make_target("one"), 8)
    second, asked = ask(tmp_path / "a.jsonl", make_target("two", seed=1), 8)
    assert asked == 2
    assert {each.model for each in second} == {"two"}
    assert [each.generated.tolist() for each in second] != [each.generated.tolist() for each in first]
