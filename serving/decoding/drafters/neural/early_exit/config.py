"""The configuration of an early-exit head."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from suffolk.datastore.checks import whole_number
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.settings import Within, check_fields
from suffolk.serving.decoding.drafters.neural.head_folder import CONFIG, own_config, read_config

KIND = "early-exit"


@dataclass(frozen=True, slots=True)
class ExitConfig:
    """The configuration of an exit. Raises the errors of ``check_fields`` and ``require_exit``.

    Attributes:
        layers: how many of the target's layers run; fewer than all.
        width: width of the exit's own block.
        target_layers, hidden_size, vocab_size: the target's number of layers and its sizes.
    """

    layers: int
    width: Annotated[int, Within(1, 1 << 20)]
    target_layers: Annotated[int, Within(1, 1024)]
    hidden_size: Annotated[int, Within(1, 1 << 20)]
    vocab_size: Annotated[int, Within(1, 1 << 24)]

    def __post_init__(self) -> None:
        check_fields(self)
        require_exit("layers", self.layers, self.target_layers)

    @staticmethod
    def load(folder: Path) -> ExitConfig:
        """The configuration in ``folder``. Raises the errors of ``read_config`` and ``own_config``."""
        return own_config(ExitConfig, KIND, read_config(folder), folder / CONFIG)


def require_exit(name: str, layers: object, target_layers: int) -> None:
    """Raise InvalidArgument unless ``layers`` is between 1 and ``target_layers - 1``. ``name``: its name in the message."""
    if not 1 <= whole_number(name, layers) < target_layers:
        raise InvalidArgument(
            f"{name} is {layers}; it must be 1 or more, and fewer than the {target_layers} of the model"
        )
