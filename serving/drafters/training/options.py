"""The settings of a training run, checked once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.engine.checked_fields import ABOVE_0, Share, Within, check_fields
from suffolk.serving.engine.sampling.settings import SamplingSettings, Seed, Temperature

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
    """Settings of the target's own answers, which replace those of the corpus.

    Attributes:
        temperature: as in ``SamplingSettings``.
        max_new_tokens: of an answer, which also ends where the window does.
        prompt_tokens: of a plain text, how many of its first tokens are the prompt.
        slots: answers written at once.

    Raises as ``check_fields``.
    """

    temperature: Temperature = 0.0
    max_new_tokens: Tokens = 512
    prompt_tokens: Tokens = 64
    slots: Slots = 8

    def __post_init__(self) -> None:
        SamplingSettings(temperature=self.temperature)  # refuses a bad temperature
        check_fields(self)


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """Settings of one training run.

    Attributes:
        head: which kind, by its name in ``heads.HEADS``; ``head_options`` are its own settings.
        model: the target, a folder in the Hugging Face layout or a hub name; it stays as it is.
        corpora: files, folders or glob patterns with text (any file that is text), or JSON lines with ``messages`` or ``text``.
        output: the folder to make; work in progress is in ``OUTPUT.training`` beside it.
        window: tokens of a document that the target and the head see together.
        batch: windows in a pass. ``accumulate``: passes in a step.
        draft_share: the share of a window's possible drafts that each pass trains, chosen at random. With a
            large vocabulary logits cost most, and a smaller share trains on more text in the same time.
        learning_rate: its maximum. It rises over the first ``warmup`` (a share) of the steps, then decays to
            0 along a cosine.
        steps: how many; or ``passes`` over the text, if steps is None. One of them; one pass if both are None.
        weight_decay: of AdamW. ``clip``: the longest gradient; 0 for any.
        dtype, device: of the target, as in ``Target.load``. ``threads``: of the CPU, for the record; None: torch's choice.
        seed: of the head's first weights, the order of windows, noise in training, and regeneration.
        held_out: share of documents that are never trained on and measure the head. They are chosen by a hash of their
            content, so copies are all on one side, whatever the seed. Above 0 it is at least one document, and never all.
        evaluate_every, save_every: steps between two evaluations, and two checkpoints.
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
            raise InvalidArgument("corpora: none given; name at least one file, folder or pattern to learn from")
        check_fields(self)
        if self.steps is not None and self.passes is not None:
            raise InvalidArgument(f"steps {self.steps} and passes {self.passes} are both given; give one of them")

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
