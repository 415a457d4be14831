"""What a trained exit is: behind which layer, and how wide."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from datastore.errors import Corruption, InvalidArgument, NotFound
from serving.decoding.checks import whole_within

KIND = "early-exit"
_MOST = {"layers": 1024, "hidden_size": 1 << 20, "width": 1 << 20}


@dataclass(frozen=True, slots=True)
class ExitConfig:
    """Attributes: how many of the target's layers run, the target's hidden size, and the width of the exit's own layer.

    Raises:
        InvalidArgument: a value is no whole number or out of its range.
    """

    layers: int
    hidden_size: int
    width: int

    def __post_init__(self) -> None:
        for name, most in _MOST.items():
            whole_within(name, getattr(self, name), 1, most)

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
            return ExitConfig(**values)
        except OSError as error:
            raise NotFound(
                f"head {folder}: config.json cannot be read ({error.strerror}); name a trained head's folder"
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError, InvalidArgument) as error:
            raise Corruption(f"{path} is not the config of an early exit: {error}; train it again") from error
