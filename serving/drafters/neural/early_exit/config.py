"""The configuration of an early-exit head: its target's shape, its layer and its width."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from suffolk.datastore.errors import Corruption, InvalidArgument, NotFound
from suffolk.serving.engine.checks import whole_number, whole_within

KIND = "early-exit"
_MOST = {"target_layers": 1024, "hidden_size": 1 << 20, "vocab_size": 1 << 24, "width": 1 << 20}


@dataclass(frozen=True, slots=True)
class ExitConfig:
    """The shape of an exit.

    Attributes:
        layers: how many of the target's layers run; fewer than all.
        width: of the exit's own layer.
        target_layers, hidden_size, vocab_size: the target's.

    Raises:
        InvalidArgument: a value is no whole number or out of its range.
    """

    layers: int
    width: int
    target_layers: int
    hidden_size: int
    vocab_size: int

    def __post_init__(self) -> None:
        for name, most in _MOST.items():
            whole_within(name, getattr(self, name), 1, most)
        require_exit("layers", self.layers, self.target_layers)

    def save(self, folder: Path) -> None:
        """Write config.json."""
        (folder / "config.json").write_text(json.dumps({"suffolk": KIND} | asdict(self), indent=2) + "\n")

    @staticmethod
    def load(folder: Path) -> ExitConfig:
        """Raises NotFound without a config.json, Corruption if it is not one of an exit."""
        path = folder / "config.json"
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            if values.pop("suffolk") != KIND:
                raise ValueError(f"'suffolk' is not {KIND}")
            if odd := sorted(values.keys() ^ {field.name for field in fields(ExitConfig)}):
                raise ValueError(f"{odd[0]} is {'unknown' if odd[0] in values else 'missing'}")
            return ExitConfig(**values)
        except OSError as error:
            raise NotFound(
                f"head {folder}: config.json cannot be read ({error.strerror}); name a trained head's folder"
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError, InvalidArgument) as error:
            raise Corruption(f"{path} is not the config of an early exit: {error}; train it again") from error


def require_exit(name: str, layers: object, target_layers: int) -> None:
    """Raises InvalidArgument unless ``layers``, called ``name``, are some of the target's, and not all: they would save nothing."""
    if not 1 <= whole_number(name, layers) < target_layers:
        raise InvalidArgument(
            f"{name} is {layers}; it must be 1 or more, and fewer than the {target_layers} of the model"
        )
