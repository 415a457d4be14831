"""The kinds of heads that can be trained: their makers, and their options for help and documentation. Imports nothing large."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from suffolk.datastore.errors import InvalidArgument

if TYPE_CHECKING:
    from suffolk.serving.drafters.training.head import TrainableHead
    from suffolk.serving.engine.model.target import Target


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


def head_maker(name: str, options: Mapping[str, Any]) -> HeadMaker:
    """The maker of a kind of head. Raises InvalidArgument for an unknown one, or one of ``options`` that it does not have."""
    if name not in HEADS:
        raise InvalidArgument(f"head {name!r} is unknown; use {', '.join(sorted(HEADS))}")
    known = [option.name for option in HEAD_OPTIONS.get(name, ())]
    unknown = sorted(options.keys() - set(known))
    if name in HEAD_OPTIONS and unknown:
        raise InvalidArgument(f"head {name} has no option {unknown[0]}; it has {', '.join(known)}")
    return HEADS[name]


def option_lines() -> list[str]:
    """All options, a line each."""
    return [
        f"{kind:<12}{option.name:<15}{option.meaning}: {option.values} (default: {option.default})"
        for kind, options in HEAD_OPTIONS.items()
        for option in options
    ]


def _make_exit(target: Target, options: Mapping[str, Any]) -> TrainableHead:
    """By default an exit behind half of the layers."""
    from suffolk.serving.drafters.neural.early_exit.training import new_head

    middle = max(1, target.layers // 2)
    return new_head(target, options.get("layers", middle), options.get("width", target.hidden_size))


def _make_redrafter(target: Target, options: Mapping[str, Any]) -> TrainableHead:
    """A recurrent head with options of ``LossConfig`` and ``RedrafterConfig``; by default with the target's output layer."""
    from suffolk.serving.drafters.neural.redrafter.training import new_head

    return new_head(target, **options)


def _make_eagle(target: Target, options: Mapping[str, Any]) -> TrainableHead:
    """A head of EAGLE-1, shaped as the target's layers."""
    from suffolk.serving.drafters.neural.eagle.training import new_head

    return new_head(target, **options)


HeadMaker = Callable[["Target", Mapping[str, Any]], "TrainableHead"]
"""(target, the head's known options) -> a head with fresh weights on the target's device."""
HEADS: dict[str, HeadMaker] = {"early-exit": _make_exit, "redrafter": _make_redrafter, "eagle": _make_eagle}
"""Kind of head -> its maker. A new kind is one more line here, and one in ``HEAD_OPTIONS``."""
