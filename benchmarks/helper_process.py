"""Arguments of the processes that a measurement starts for itself."""

from __future__ import annotations

import sys


def helper_arguments(count: int, starter: str) -> list[str]:
    """The ``count`` arguments of this process. Without them it exits with code 2 and names the command ``starter``."""
    given = sys.argv[1:]
    if len(given) != count or given[0].startswith("-"):
        print(f"error: this process is started by '{starter}'; run that", file=sys.stderr)
        raise SystemExit(2)
    return given
