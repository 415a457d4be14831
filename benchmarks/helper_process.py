"""Reads the arguments of helper processes that a measurement starts."""

from __future__ import annotations

import sys


def helper_arguments(count: int, starter: str) -> list[str]:
    """Return the ``count`` arguments of this process. If they are missing, exit with code 2 and name ``starter``."""
    given = sys.argv[1:]
    if len(given) != count or given[0].startswith("-"):
        print(f"error: this is a helper process of '{starter}'; run that command", file=sys.stderr)
        raise SystemExit(2)
    return given
