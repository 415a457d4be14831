"""Exceptions of user code, which must not end the engine."""

from __future__ import annotations

import asyncio

USER_CODE_ERRORS = (Exception, SystemExit, GeneratorExit, asyncio.CancelledError)
"""All but KeyboardInterrupt, which ends the program."""


def first_line(error: BaseException) -> str:
    """The first line of ``error``: torch's messages can be pages long."""
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
