"""A command that must end before torch is loaded."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from suffolk.cli.main import main as run


def main(words: Sequence[str]) -> int:
    """The exit code of ``suffolk WORDS``."""
    code = run(words)
    assert "torch" not in sys.modules
    return code
