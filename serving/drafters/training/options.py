"""The settings of a training run, checked once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.engine.checked_fields import Within, check_fields
from suffolk.serving.engine.sampling.settings import SamplingSettings

MAX_SEED = 2**63 - 1
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

Share = Annotated[float, Within(math.ulp(0.0), 1.0, "above 0 and at most 1")]


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

    temperature: float = 0.0
    max_new_tokens: Annotated[int, Within(1, 1 << 20)] = 512
    prompt_tokens: Annotated[int, Within(1, 1 << 20)] = 64
    slots: Annotated[int, Within(1, 1024)] = 8

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
    window: Annotated[int, Within(8, 1 << 20)] = 1024
    batch: Annotated[int, Within(1, 4096)] = 4
    accumulate: Annotated[int, Within(1, 4096)] = 1
    draft_share: Share = 1.0
    learning_rate: Share = 3e-4
    warmup: Annotated[float, Within(0, 1)] = 0.02
    steps: Annotated[int, Within(1, 1 << 40)] | None = None
    passes: Annotated[float, Within(math.ulp(0.0), 10_000, "above 0 and at most 10000")] | None = None
    weight_decay: Annotated[float, Within(0, 1)] = 0.01
    clip: Annotated[float, Within(0, 1_000_000)] = 0.5
    dtype: Literal["auto", "float32", "bfloat16", "float16", "float64"] = "auto"
    device: str = "auto"
    threads: int | None = None
    seed: Annotated[int, Within(0, MAX_SEED)] = 0
    held_out: Annotated[float, Within(0, 0.5)] = 0.02
    evaluate_every: Annotated[int, Within(1, 1 << 40)] = 200
    evaluate_windows: Annotated[int, Within(1, 1 << 20)] = 128
    save_every: Annotated[int, Within(1, 1 << 40)] = 200
    cache_bytes: Annotated[int, Within(0, 1 << 50)] = 0
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
