"""Settings of the measurement of predicted texts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from suffolk.benchmarks.decode.options import PLAIN, DecodingOptions
from suffolk.datastore.errors import Field, InvalidArgument


@dataclass(frozen=True, slots=True)
class PredictionOptions:
    """Settings of ``suffolk bench prediction``. Checked when made.

    Attributes:
        decoding: the model, the drafters, and the length of answers.
        files: source files to edit, or folders of them.
        limit: number of files, chosen at random.
        lines: number of lines used from the beginning of each file.
        shares: shares of an answer's lines that are wrong in its prediction, each 0..1.
    """

    decoding: DecodingOptions
    files: tuple[Path, ...]
    limit: int = 8
    lines: int = 30
    shares: tuple[float, ...] = (0.0, 0.05, 0.2, 0.5, 1.0)

    def __post_init__(self) -> None:
        for name, value in (("limit", self.limit), ("lines", self.lines)):
            if value < 1:
                raise InvalidArgument(f"{name} is {value}; it must be 1 or more")
        if PLAIN in self.decoding.drafters:
            raise InvalidArgument(
                Field("drafters"), f": {PLAIN} is plain decoding, which is always measured; leave it out"
            )
        for share in self.shares:
            if not 0 <= share <= 1:
                raise InvalidArgument(f"share {share} is out of range; it must be between 0 and 1")
