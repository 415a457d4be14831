"""Runs a benchmark as a command: an error of the closed set is one line, and the exit code says that it failed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from datastore.errors import SuffolkError


def run_command(
    parser: argparse.ArgumentParser, work: Callable[[argparse.Namespace], int], arguments: Sequence[str] | None
) -> int:
    """``work`` with what ``parser`` reads from ``arguments`` (None: the command line's): its exit code, or the error's."""
    args = parser.parse_args(arguments)
    try:
        return work(args)
    except SuffolkError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
