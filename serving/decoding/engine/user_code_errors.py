"""The exceptions of user code and libraries that must not end the engine, and the first lines of their messages."""

from __future__ import annotations

import asyncio

USER_CODE_ERRORS = (Exception, SystemExit, GeneratorExit, asyncio.CancelledError)
"""Exceptions that must not end the engine: all except KeyboardInterrupt, which ends the program."""


def first_line(error: BaseException) -> str:
    """The type of ``error`` and the first line of its message. Messages of torch can be pages long."""
    return f"{type(error).__name__}: {message_line(error)}" if str(error).strip() else type(error).__name__


def message_line(error: BaseException) -> str:
    """The first line of the message of ``error`` without a full stop; the type of ``error`` if the message is empty."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
