"""The settings of a training run, checked once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from suffolk.datastore.checks import ABOVE_0
from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.datastore.settings import Share, Within, check_fields
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
Clip = Annotated[float, Within(0, 1_000_000)]
Fraction = Annotated[float, Within(0, 1)]
HeldOut = Annotated[float, Within(0, 0.5)]
CacheBytes = Annotated[int, Within(0, 1 << 50)]
Passes = Annotated[float, Within(ABOVE_0, 10_000)]
Slots = Annotated[int, Within(1, 1024)]
Steps = Annotated[int, Within(1, 1 << 40)]
Tokens = Annotated[int, Within(1, 1 << 20)]
Window = Annotated[int, Within(8, 1 << 20)]


@dataclass(frozen=True, slots=True)
class Regeneration:
    """Settings of the target's own answers, which replace the corpus's answers.

    Attributes:
        temperature: as in ``SamplingSettings``.
        max_new_tokens: the most tokens of an answer. An answer also ends at the end of the window.
        prompt_tokens: number of first tokens of a plain text that serve as its prompt.
        slots: batch size of generation.

    Raises as ``check_fields``.
    """

    temperature: Temperature = 0.0
    max_new_tokens: Tokens = 512
    prompt_tokens: Tokens = 64
    slots: Slots = 8

    def __post_init__(self) -> None:
        SamplingSettings(temperature=self.temperature)  # rejects a bad temperature
        check_fields(self)


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """Settings of one training run.

    Attributes:
        head: name of the head's kind in ``heads.HEADS``. ``head_options``: settings of that kind.
        model: the target, a folder in the Hugging Face layout or a hub name. It is not modified.
        corpora: files, folders or glob patterns with text (any file that is text), or JSON records with ``messages`` or a text.
        text_field: field of a JSON record, or column of a Parquet file, with the text.
        output: the folder to create. Work in progress is in ``OUTPUT.training`` beside it.
        window: tokens of a document that the target and the head see together.
        batch: windows per pass. ``accumulate``: passes per step.
        draft_share: random share of a window's possible drafts that each pass trains. With a large vocabulary logits
            dominate the cost, so a smaller share covers more text in the same time.
        learning_rate: the maximum. It rises over the first ``warmup`` (a share) of the steps, then decays to
            0 along a cosine.
        steps: number of steps. ``passes``: number of passes over the text. Set at most one; with neither, one pass.
        weight_decay: AdamW's. ``clip``: largest gradient norm; 0 for no limit.
        dtype, device: of the target, as in ``Target.load``. ``threads``: CPU threads, for the record; None for torch's
            choice.
        seed: seed of the head's initial weights, the order of windows, training noise, and regeneration.
        held_out: share of documents that are excluded from training and evaluate the head. They are chosen by a hash of
            their content, so all copies are on the same side for any seed. A share above 0 selects at least one
            document, and never all.
        evaluate_every, save_every: steps between two evaluations, and two checkpoints.
        evaluate_windows: the most held-out windows of an evaluation.
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
    text_field: str = "text"
    window: Window = 1024
    batch: Batch = 4
    accumulate: Batch = 1
    draft_share: Share = 1.0
    learning_rate: Share = 3e-4
    warmup: Fraction = 0.02
    steps: Steps | None = None
    passes: Passes | None = None
    weight_decay: Fraction = 0.01
    clip: Clip = 0.5
    dtype: Literal["auto", "float32", "bfloat16", "float16", "float64"] = "auto"
    device: str = "auto"
    threads: int | None = None
    seed: Seed = 0
    held_out: HeldOut = 0.02
    evaluate_every: Steps = 200
    evaluate_windows: Tokens = 128
    save_every: Steps = 200
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
