"""The settings of a training run, checked once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.engine.checks import number, whole_within
from suffolk.serving.engine.sampling.settings import SamplingSettings

MAX_SEED = 2**63 - 1
DTYPES = ("auto", "float32", "bfloat16", "float16", "float64")
CHANGEABLE = (
    "output",
    "learning_rate",
    "clip",
    "device",
    "threads",
    "evaluate_every",
    "evaluate_windows",
    "save_every",
    "cache_bytes",
)
"""Settings that may change when a run is resumed: they affect neither its data nor its number of steps."""
ANSWERING = ("model", "corpora", "data", "window", "dtype", "seed", "regenerate")
"""Settings that the target's answers depend on: before the first checkpoint all others may change."""

_WHOLE = {
    "window": (8, 1 << 20),
    "batch": (1, 4096),
    "accumulate": (1, 4096),
    "seed": (0, MAX_SEED),
    "evaluate_every": (1, 1 << 40),
    "evaluate_windows": (1, 1 << 20),
    "save_every": (1, 1 << 40),
    "cache_bytes": (0, 1 << 50),
}
_NUMBERS = {
    "draft_share": (math.ulp(0.0), 1.0, "above 0 and at most 1"),
    "learning_rate": (math.ulp(0.0), 1.0, "above 0 and at most 1"),
    "warmup": (0.0, 1.0, "between 0 (none) and 1"),
    "weight_decay": (0.0, 1.0, "between 0 (none) and 1"),
    "clip": (0.0, 1e6, "between 0 (off) and 1000000"),
    "held_out": (0.0, 0.5, "between 0 (none) and 0.5"),
}


@dataclass(frozen=True, slots=True)
class Regeneration:
    """Settings of the target's own answers, which replace those of the corpus.

    Attributes:
        temperature: as in ``SamplingSettings``.
        max_new_tokens: of an answer; 1..2^20. An answer also ends where the window does.
        prompt_tokens: of a plain text, how many of its first tokens are the prompt; 1..2^20.
        slots: answers written at once; 1..1024.

    Raises:
        InvalidArgument: a value is of another type or out of its range.
    """

    temperature: float = 0.0
    max_new_tokens: int = 512
    prompt_tokens: int = 64
    slots: int = 8

    def __post_init__(self) -> None:
        SamplingSettings(temperature=self.temperature)  # refuses a bad temperature
        for name, most in (("max_new_tokens", 1 << 20), ("prompt_tokens", 1 << 20), ("slots", 1024)):
            whole_within(name, getattr(self, name), 1, most)


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """Settings of one training run.

    Attributes:
        head: which kind, by its name in ``heads.HEADS``; ``head_options`` are its own settings.
        model: the target, a folder in the Hugging Face layout or a hub name; it stays as it is.
        corpora: files, folders or glob patterns with text (any file that is text), or JSON lines with ``messages`` or ``text``.
        output: the folder to make; work in progress is in ``OUTPUT.training`` beside it.
        window: tokens of a document that the target and the head see together; 8..2^20.
        batch: windows in a pass; 1..4096. ``accumulate``: passes in a step; 1..4096.
        draft_share: the share of a window's possible drafts that each pass trains, chosen at random; above 0, at most 1. With a
            large vocabulary logits cost most, and a smaller share trains on more text in the same time.
        learning_rate: its maximum; above 0, at most 1. It rises over the first ``warmup`` (a share) of the steps, then decays to
            0 along a cosine.
        steps: how many; or ``passes`` over the text, if steps is None. One of them; one pass if both are None.
        weight_decay: of AdamW; 0..1. ``clip``: the longest gradient; 0 for any.
        dtype, device: of the target, as in ``Target.load``. ``threads``: of the CPU, for the record; None: torch's choice.
        seed: of the head's first weights, the order of windows, noise in training, and regeneration; 0..2^63-1.
        held_out: share of documents that are never trained on and measure the head; 0..0.5. They are chosen by a hash of their
            content, so copies are all on one side, whatever the seed. Above 0 it is at least one document, and never all.
        evaluate_every, save_every: steps between two evaluations, and two checkpoints; 1 or more.
        evaluate_windows: how many held-out windows an evaluation sees at most.
        cache_bytes: the most bytes of hidden states on disk; 0: they are computed in each pass.
        regenerate: let the target generate the answers; None: learn from the corpus as it is.

    Raises:
        InvalidArgument: a value is of another type or out of its range.
    """

    head: str
    model: str
    corpora: tuple[str, ...]
    output: Path
    head_options: Mapping[str, Any] = field(default_factory=dict)
    window: int = 1024
    batch: int = 4
    accumulate: int = 1
    draft_share: float = 1.0
    learning_rate: float = 3e-4
    warmup: float = 0.02
    steps: int | None = None
    passes: float | None = None
    weight_decay: float = 0.01
    clip: float = 0.5
    dtype: str = "auto"
    device: str = "auto"
    threads: int | None = None
    seed: int = 0
    held_out: float = 0.02
    evaluate_every: int = 200
    evaluate_windows: int = 128
    save_every: int = 200
    cache_bytes: int = 0
    regenerate: Regeneration | None = None

    def __post_init__(self) -> None:
        if not self.corpora:
            raise InvalidArgument("corpora: none given; name at least one file, folder or pattern to learn from")
        for name, (low, high) in _WHOLE.items():
            whole_within(name, getattr(self, name), low, high)
        for name, (least, most, words) in _NUMBERS.items():
            value = number(name, getattr(self, name))
            if not least <= value <= most:  # also refuses NaN
                raise InvalidArgument(f"{name} is {value}; it must be {words}")
        if self.dtype not in DTYPES:
            raise InvalidArgument(f"dtype {self.dtype!r} is unknown; use {', '.join(DTYPES)}")
        if self.steps is not None and self.passes is not None:
            raise InvalidArgument(f"steps {self.steps} and passes {self.passes} are both given; give one of them")
        if self.steps is not None:
            whole_within("steps", self.steps, 1, 1 << 40)
        if self.passes is not None and not 0 < number("passes", self.passes) <= 10_000:
            raise InvalidArgument(f"passes is {self.passes}; it must be above 0 and at most 10000")

    def count_steps(self, windows: int) -> int:
        """The number of steps on so many windows."""
        if self.steps is not None:
            return self.steps
        batches = math.ceil(windows / self.batch)
        return max(1, math.ceil((1.0 if self.passes is None else self.passes) * batches / self.accumulate))

    def to_dict(self) -> dict[str, Any]:
        """All settings, as JSON holds them."""
        return asdict(self) | {
            "corpora": list(self.corpora),
            "output": str(self.output),
            "head_options": dict(self.head_options),
        }
