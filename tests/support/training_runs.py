"""Training runs for tests: short ones of a linear head on a tiny model."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch

from suffolk.build_index.progress import WorkProgress
from suffolk.serving.decoding.drafters.training import run
from suffolk.serving.decoding.drafters.training.options import TrainOptions
from suffolk.serving.decoding.engine.model.target import Target
from tests.support.linear_head import weights


@functools.cache
def load(model: str) -> Target:
    """The shared target of all runs, which do not change it."""
    return Target.load(model, accelerate=False)


def conversation(*contents: str) -> tuple[dict[str, str], ...]:
    """Alternate a user's and an assistant's messages."""
    return tuple({"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(contents))


def train(chosen: TrainOptions, progress: WorkProgress | None = None, resume: bool = False) -> dict[str, Any]:
    return run.train(chosen, progress, resume, lambda options, accelerate: load(options.model))


def default_options(*corpora: Path | str, **more: Any) -> TrainOptions:
    """Options of a run that never starts."""
    return TrainOptions(head="linear", model="M", corpora=tuple(map(str, corpora)) or ("x",), output=Path("/o"), **more)


def options(model: str, corpus: str, output: Path, **more: Any) -> TrainOptions:
    chosen = {
        "window": 40,
        "batch": 4,
        "held_out": 0.2,
        "steps": 8,
        "save_every": 3,
        "evaluate_every": 4,
        "learning_rate": 0.01,
    }
    return TrainOptions(head="linear", model=model, corpora=(corpus,), output=output, **(chosen | more))


class Listening(WorkProgress):
    """Records the notes, and calls ``act`` after a training step."""

    def __init__(self, act: Any = None, step: int = 0) -> None:
        self.notes: list[str] = []
        self._act, self._step = act, f"step {step} of"

    def note(self, text: str) -> None:
        self.notes.append(text)

    def advance(self, work: str, share: float, facts: str) -> None:
        if self._act is not None and facts.startswith(self._step):
            self._act()


def equal(one: Path, other: Path) -> bool:
    first, second = weights(one), weights(other)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
