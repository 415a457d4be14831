"""What code that is not ours may raise where it must not end the engine."""

from __future__ import annotations

import asyncio

USER_CODE_ERRORS = (Exception, SystemExit, GeneratorExit, asyncio.CancelledError)
"""All but KeyboardInterrupt, which is meant for whoever runs the program."""


def first_line(error: BaseException) -> str:
    """``error`` in one line: torch's messages can be pages long."""
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
