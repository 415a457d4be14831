"""The trainable kinds of heads, with their options for help and documentation. Imports nothing large."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from suffolk.datastore.checks import check_choice, check_keys
from suffolk.serving.decoding.drafters.drafter_entry import resolve

if TYPE_CHECKING:
    from suffolk.serving.decoding.drafters.training.head import TrainableHead
    from suffolk.serving.decoding.engine.model.target import Target

_ROOM = "suffolk.serving.decoding.drafters.neural"


class HeadOption(NamedTuple):
    """An option of a head: its name, and its values, default and meaning in words."""

    name: str
    values: str
    default: str
    meaning: str


class HeadKind(NamedTuple):
    """A trainable kind of head.

    Attributes:
        maker: "module:function". The function takes the target and options, and returns a head with fresh weights.
        options: the options of the maker.
    """

    maker: str
    options: tuple[HeadOption, ...]


HEADS = {
    "early-exit": HeadKind(
        f"{_ROOM}.early_exit.training:new_head",
        (
            HeadOption("layers", "1 or more, fewer than all", "half of them", "number of the model's layers that run"),
            HeadOption("width", "1..1048576", "the model's hidden size", "width of the exit's own layer"),
        ),
    ),
    "redrafter": HeadKind(
        f"{_ROOM}.redrafter.training:new_head",
        (
            HeadOption("exit_dim", "1..262144", "twice the model's hidden size", "width of the residual blocks"),
            HeadOption("blocks", "0..64", "2", "residual blocks"),
            HeadOption("initial_state", "embedding or zero", "embedding", "state before the first drafted token"),
            HeadOption(
                "output",
                "target or own",
                "target",
                "whether to use the model's output layer (target) or one of the head's own (own)",
            ),
            HeadOption(
                "recurrent",
                "true or false",
                "true",
                "whether the state is recurrent; if not, it is a sum of embeddings, without weights",
            ),
            HeadOption("tokens", "1..64", "5", "number of tokens ahead that the head learns to predict"),
            HeadOption(
                "distillation",
                "true or false",
                "false",
                "whether to learn the model's probabilities instead of the text's tokens",
            ),
        ),
    ),
    "eagle": HeadKind(
        f"{_ROOM}.eagle.training:new_head",
        (HeadOption("noise", "0..10", "0.2", "width of the uniform noise that training adds to hidden states"),),
    ),
}
"""The trainable kinds by name. To add a kind, add an entry."""


def head_maker(name: str, options: Mapping[str, Any]) -> Callable[[Target], TrainableHead]:
    """A function that makes a head of a kind with ``options``. Raises InvalidArgument: the kind or an option is unknown."""
    check_choice("head", name, HEADS)
    check_keys(f"head {name}", options, [option.name for option in HEADS[name].options])
    return lambda target: resolve(HEADS[name].maker)(target, **options)


def option_lines() -> list[str]:
    """All options, a line each."""
    return [
        f"{name:<12}{option.name:<15}{option.meaning}: {option.values} (default: {option.default})"
        for name, kind in HEADS.items()
        for option in kind.options
    ]
