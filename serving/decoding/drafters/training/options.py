"""The settings of a training run, checked once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from suffolk.datastore.checks import ABOVE_0
from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.datastore.settings import Share, Within, check_fields, option, rare
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings, Seed, Temperature

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
"""Settings that may change when a run is resumed, because they affect neither its data nor its number of steps."""
ANSWERING = ("model", "corpora", "text_field", "data", "window", "dtype", "seed", "regenerate")
"""Settings that the target's answers depend on. Before the first checkpoint all other settings may change."""

Batch = Annotated[int, Within(1, 4096)]
Fraction = Annotated[float, Within(0, 1)]
CacheBytes = Annotated[int, Within(0, 1 << 50)]
Passes = Annotated[float, Within(ABOVE_0, 10_000)]
Slots = Annotated[int, Within(1, 1024)]
Steps = Annotated[int, Within(1, 1 << 40)]
Tokens = Annotated[int, Within(1, 1 << 20)]


@dataclass(frozen=True, slots=True)
class Regeneration:
    """Settings of the target's own answers, which replace the corpus's answers.

    Attributes:
        temperature: as in ``SamplingSettings``.
        max_new_tokens: the most tokens of an answer. An answer also ends at the end of the window.
        prompt_tokens: number of first tokens of a plain text that serve as its prompt.
        slots: batch size of generation.

    Raises the errors of ``check_fields``.
    """

    temperature: Temperature = 0.0
    max_new_tokens: Tokens = 512
    prompt_tokens: Tokens = 64
    slots: Slots = 8

    def __post_init__(self) -> None:
        SamplingSettings(temperature=self.temperature)  # rejects a bad temperature
        check_fields(self)


@dataclass(frozen=True, kw_only=True)
class TrainData:
    """What to train on. A hash of a document's content decides whether it is held out, so its copies are treated alike."""

    GROUP = "data"
    text_field: str = option(
        "text", "field or column with the text; a.b is field b of the object a", metavar="NAME", blank=True
    )
    window: Annotated[int, Within(8, 1 << 20)] = option(
        1024, "tokens of a window; longer documents are cut into several windows"
    )
    batch: Batch = option(4, "windows in a pass")
    draft_share: Share = rare(
        1.0, "share of a window's drafts that a pass trains; a smaller share is faster", metavar="SHARE"
    )
    held_out: Annotated[float, Within(0, 0.5)] = option(
        0.02,
        "share of documents that are used for evaluation instead of training, at least one document; 0 is none",
        metavar="SHARE",
    )
    evaluate_windows: Tokens = rare(128, "most held-out windows in an evaluation")


@dataclass(frozen=True, kw_only=True)
class TrainSteps:
    """How long and how fast to train."""

    GROUP = "steps"
    passes: Passes | None = option(None, "passes over the text (default: 1)", metavar="N", excludes=("steps",))
    steps: Steps | None = option(None, "steps, in place of passes", excludes=("passes",))
    accumulate: Batch = rare(1, "batches in a step")
    learning_rate: Share = option(3e-4, "highest learning rate", metavar="RATE")
    warmup: Fraction = rare(
        0.02,
        "share of the steps in which the learning rate rises; then it falls along a cosine",
        metavar="SHARE",
    )
    weight_decay: Fraction = rare(0.01, "weight decay of AdamW", metavar="W")
    clip: Annotated[float, Within(0, 1_000_000)] = rare(
        0.5, "largest norm of a gradient; 0 is no limit", metavar="NORM"
    )
    seed: Seed = option(0, "seed of the initial weights, the order of windows and the noise (default: 0)")
    evaluate_every: Steps = rare(200, "steps between two points of the learning curve", metavar="STEPS")
    save_every: Steps = rare(200, "steps between two checkpoints", metavar="STEPS")


@dataclass(frozen=True, kw_only=True)
class TrainOptions(TrainSteps, TrainData):
    """Settings of one training run.

    Attributes:
        head: name of the head's kind in ``heads.HEADS``. ``head_options``: settings of that kind.
        model: the target, a folder in the Hugging Face layout or a hub name. It is not modified.
        corpora: files, folders or glob patterns with text (any file that is text), or JSON records with ``messages`` or a text.
        output: the folder to create. Work in progress is in ``OUTPUT.training`` beside it.
        dtype, device: of the target, as in ``Target.load``. ``threads``: CPU threads, for the record; None for torch's
            choice.
        cache_bytes: the most bytes of hidden states on disk; 0 to compute them in each pass.
        regenerate: settings for answers that the target generates; None to train on the corpus unchanged.

    Raises:
        InvalidArgument: a value has another type or is out of range.
    """

    head: str
    model: str
    corpora: tuple[str, ...]
    output: Path
    head_options: Mapping[str, Any] = field(default_factory=dict)
    dtype: Literal["auto", "float32", "bfloat16", "float16", "float64"] = "auto"
    device: str = "auto"
    threads: int | None = None
    cache_bytes: CacheBytes = 0
    regenerate: Regeneration | None = None

    def __post_init__(self) -> None:
        if not self.corpora:
            raise InvalidArgument(
                Field("corpora"), ": none given; name at least one file, folder or pattern to learn from"
            )
        check_fields(self)
        if self.steps is not None and self.passes is not None:
            raise InvalidArgument(f"steps {self.steps} and passes {self.passes} are both given; give one of them")

    def count_steps(self, windows: int) -> int:
        """The number of steps on ``windows`` windows."""
        if self.steps is not None:
            return self.steps
        batches = math.ceil(windows / self.batch)
        return max(1, math.ceil((1.0 if self.passes is None else self.passes) * batches / self.accumulate))

    def to_dict(self) -> dict[str, Any]:
        """All settings, as JSON values."""
        return asdict(self) | {
            "corpora": list(self.corpora),
            "output": str(self.output),
            "head_options": dict(self.head_options),
        }
