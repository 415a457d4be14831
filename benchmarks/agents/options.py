"""Settings of the measurement of agents."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from suffolk.benchmarks.agents.edits import EDITS
from suffolk.benchmarks.decode.options import DecodingOptions
from suffolk.datastore.errors import Field, InvalidArgument


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """Settings of ``suffolk bench agents``. Checked when made.

    Attributes:
        decoding: the model, the length of answers, and the temperature. Its prompts and drafters are not used.
        files: source files to edit, or folders of them.
        limit: number of files, chosen at random.
        lines: number of lines used from the beginning of each file.
        sessions: sessions that edit each file, each from its first version on.
        turns: edits in each session, 1 to the number of ``EDITS``.
    """

    decoding: DecodingOptions
    files: tuple[Path, ...]
    limit: int = 3
    lines: int = 25
    sessions: int = 3
    turns: int = 2

    def __post_init__(self) -> None:
        for name, value in (("limit", self.limit), ("lines", self.lines), ("sessions", self.sessions)):
            if value < 1:
                raise InvalidArgument(f"{name} is {value}; it must be 1 or more")
        if not 1 <= self.turns <= len(EDITS):
            raise InvalidArgument(Field("turns"), f" is {self.turns}; it must be 1 to {len(EDITS)}")
