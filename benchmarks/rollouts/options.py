"""Settings of the measurement of rollouts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from suffolk.benchmarks.decode.options import DecodingOptions
from suffolk.datastore.errors import Field, InvalidArgument

METHODS = ("prompt-lookup", "prompt trees", "arctic", "live store", "hybrid")


@dataclass(frozen=True, slots=True)
class RolloutOptions:
    """Settings of ``suffolk bench rollouts``. Checked when made.

    Attributes:
        decoding: the model, the prompts, and the length of answers. Its temperature and drafters are not used.
        samples: answers to each prompt in each epoch. They are generated together, as one batch.
        temperatures: temperature of each epoch, above 0. The length is the number of epochs.
        earlier_model: folder or hub name of the model that wrote the answers of the first epoch; None for the measured model.
        methods: names out of ``METHODS``.
        answers: file of plain answers, along which the methods draft in counted time. Missing answers are sampled, and added to
            it. None to generate with each method, by the clock.
    """

    decoding: DecodingOptions
    samples: int = 8
    temperatures: tuple[float, ...] = (1.0, 1.0)
    earlier_model: str | None = None
    methods: tuple[str, ...] = METHODS
    answers: Path | None = None

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise InvalidArgument(Field("samples"), f" is {self.samples}; it must be 1 or more")
        if not self.temperatures:
            raise InvalidArgument(Field("temperatures"), " is empty; give one for each epoch")
        for value in self.temperatures:
            if not 0 < value <= 2:
                raise InvalidArgument(
                    Field("temperature"), f" {value} is out of range; it must be above 0, and at most 2"
                )
        for name in self.methods:
            if name not in METHODS:
                raise InvalidArgument(f"method {name!r} is unknown; choose from: {', '.join(METHODS)}")
        if len(set(self.methods)) != len(self.methods):
            raise InvalidArgument(f"methods {', '.join(self.methods)}: one is named twice")
