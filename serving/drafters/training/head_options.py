"""The options of each kind of head, for makers, help and documentation. Imports nothing large."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from suffolk.datastore.errors import InvalidArgument


class HeadOption(NamedTuple):
    """An option: its name, values, default and meaning, all in words."""

    name: str
    values: str
    default: str
    meaning: str


HEAD_OPTIONS: dict[str, tuple[HeadOption, ...]] = {
    "early-exit": (
        HeadOption("layers", "1 or more, fewer than all", "half of them", "of the model's layers, how many run"),
        HeadOption("width", "1..1048576", "the model's hidden size", "width of the exit's own layer"),
    ),
    "redrafter": (
        HeadOption("exit_dim", "1..262144", "twice the model's hidden size", "width of the residual blocks"),
        HeadOption("blocks", "0..64", "2", "residual blocks"),
        HeadOption("initial_state", "embedding or zero", "embedding", "state before the first drafted token"),
        HeadOption("output", "target or own", "target", "whose output layer: the model's, or one of the head's"),
        HeadOption("recurrent", "true or false", "true", "false: the state is a sum of embeddings, without weights"),
        HeadOption("tokens", "1..64", "5", "tokens ahead that are trained"),
        HeadOption("distillation", "true or false", "false", "learn the model's probabilities, not the text's tokens"),
    ),
    "eagle": (HeadOption("noise", "0..10", "0.2", "width of uniform noise on hidden states, in training"),),
}
"""Kind of head -> its options, in order."""


def require_known(kind: str, options: Mapping[str, Any]) -> None:
    """Raise InvalidArgument if ``options`` has one that this kind of head does not have."""
    known = [option.name for option in HEAD_OPTIONS[kind]]
    unknown = sorted(options.keys() - set(known))
    if unknown:
        raise InvalidArgument(f"head {kind} has no option {unknown[0]}; it has {', '.join(known)}")


def option_lines() -> list[str]:
    """All options, a line each."""
    return [
        f"{kind:<12}{option.name:<15}{option.meaning}: {option.values} (default: {option.default})"
        for kind, options in HEAD_OPTIONS.items()
        for option in options
    ]


def option_rows() -> list[str]:
    """All options as rows of a Markdown table."""
    return [
        f"| {kind} | `{option.name}` | {option.meaning} | {option.values} | {option.default} |"
        for kind, options in HEAD_OPTIONS.items()
        for option in options
    ]
