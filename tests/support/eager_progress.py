"""The command with progress reports after every part, without a pause between two reports."""

from __future__ import annotations

from collections.abc import Sequence

from suffolk.build_index import progress
from suffolk.cli.main import main as run


def main(words: Sequence[str]) -> int:
    """The exit code of ``suffolk WORDS``."""
    progress.PLAIN_SECONDS = 0
    return run(words)
