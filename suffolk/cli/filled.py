"""Types of options that name something."""

from __future__ import annotations

import argparse
from pathlib import Path


def filled(text: str) -> str:
    """``text``. Raises ArgumentTypeError if it is empty, as it is where a shell's variable has no value."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty; give a name or a path")
    return text


def filled_path(text: str) -> Path:
    """``text`` as a path: an empty one would be the working folder. Raises as ``filled``."""
    return Path(filled(text))
