"""Parses stacks of levels, as in ``prompt-lookup:4 > exit-8:4 > draft-model:6``, from the bottom up."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from suffolk.datastore.checks import number, whole_within
from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.serving.decoding.engine.sampling.settings import MIN_TEMPERATURE

RETRIEVAL = ("prompt-lookup", "datastore")
DRAFT_MODEL = "draft-model"
TARGET = "target"
_EXIT = re.compile(r"exit-([1-9][0-9]{0,4})")
_LEVEL = re.compile(r"(?P<name>[a-z0-9-]+)(?:@(?P<temperature>[0-9.eE+-]+))?:(?P<tokens>[0-9]{1,9})")
MOST_LEVELS = 16
MOST_TOKENS = 64
EXAMPLE = "prompt-lookup:4 > draft-model:6"


@dataclass(frozen=True, slots=True)
class StackLevel:
    """One drafting level of a stack.

    Attributes:
        name: prompt-lookup, datastore, draft-model, or exit-N for the target's first N layers.
        tokens: the least tokens of its drafts, 1..64; for retrieval the most.
        temperature: its temperature for requests above temperature 0; 0 or 1e-6..100; None for the request's.

    Raises:
        InvalidArgument: a value is out of its range, or retrieval is given a temperature.
    """

    name: str
    tokens: int
    temperature: float | None = None

    def __post_init__(self) -> None:
        if self.name not in (*RETRIEVAL, DRAFT_MODEL) and not _EXIT.fullmatch(self.name):
            raise InvalidArgument(
                f"level {self.name!r} is unknown; use {', '.join(RETRIEVAL)}, {DRAFT_MODEL}, or exit-N for the model's first N "
                "layers"
            )
        whole_within(f"tokens of level {self.name}", self.tokens, 1, MOST_TOKENS)
        if self.temperature is not None:
            value = number(f"temperature of level {self.name}", self.temperature)
            if self.is_retrieval:
                raise InvalidArgument(
                    Field("temperature"), f" of level {self.name} is {value}; retrieval samples nothing, leave it out"
                )
            if value != 0 and not MIN_TEMPERATURE <= value <= 100:
                raise InvalidArgument(
                    Field("temperature"),
                    f" of level {self.name} is {value}; it must be 0 (greedy), or between {MIN_TEMPERATURE} and 100",
                )

    @property
    def is_retrieval(self) -> bool:
        return self.name in RETRIEVAL

    @property
    def exit_layers(self) -> int | None:
        """N for the level name exit-N; None for other names."""
        found = _EXIT.fullmatch(self.name)
        return None if found is None else int(found[1])

    def __str__(self) -> str:
        return f"{level_name(self.name, self.temperature)}:{self.tokens}"


def level_name(name: str, temperature: float | None) -> str:
    """Format a level's name and temperature."""
    return name if temperature is None else f"{name}@{temperature:g}"


def read_stack(text: str) -> tuple[StackLevel, ...]:
    """Parse the levels of ``text``, from the bottom up. It may end with ``> target``.

    Raises the errors of ``StackLevel`` and ``require_stack``, and InvalidArgument if ``text`` cannot be parsed.
    """
    levels = []
    parts = text.split(">")
    if len(parts) > 1 and parts[-1].strip() == TARGET:
        parts.pop()
    for part in parts:
        found = _LEVEL.fullmatch(part.strip())
        if found is None:
            raise InvalidArgument(
                Field("levels"),
                f": {part.strip()!r} is not a level; write NAME:TOKENS or NAME@TEMPERATURE:TOKENS, from the bottom up, as in "
                f"{EXAMPLE!r}",
            )
        written = found["temperature"]
        try:
            temperature = None if written is None else float(written)
        except ValueError as error:
            raise InvalidArgument(
                Field("levels"), f": temperature {written!r} of {found['name']} is not a number"
            ) from error
        levels.append(StackLevel(found["name"], int(found["tokens"]), temperature))
    require_stack(levels)
    return tuple(levels)


def name_stack(levels: tuple[StackLevel, ...]) -> str:
    """The inverse of ``read_stack``."""
    return " > ".join(map(str, levels))


def require_stack(levels: Sequence[StackLevel]) -> None:
    """Raise InvalidArgument unless ``levels``, from the bottom up, are a stack.

    A stack has 1 to 16 distinct levels. Only the bottom level may be retrieval. The layers of exits rise.
    """
    if not 0 < len(levels) <= MOST_LEVELS:
        raise InvalidArgument(f"levels are {len(levels)}; give 1 to {MOST_LEVELS}")
    names = [level.name for level in levels]
    for place, level in enumerate(levels):
        if level.is_retrieval and place:
            raise InvalidArgument(
                f"level {level.name} stands above {names[place - 1]}; retrieval can only be the bottom level"
            )
        if names.count(level.name) > 1:
            raise InvalidArgument(f"level {level.name} is named twice; leave one out")
    exits = [level.exit_layers for level in levels if level.exit_layers is not None]
    if exits != sorted(exits):
        raise InvalidArgument(f"levels exit-{exits[0]} ...: the exits' layers must rise from the bottom up")
