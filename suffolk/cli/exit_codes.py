"""Turns the error of a command into one line on stderr and an exit code."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress

from suffolk.datastore.errors import SuffolkError


def exit_code_of(work: Callable[[], int], name: str) -> int:
    """Run ``work``; returns its exit code, or that of its error. The error's line begins with ``name``.

    1: an internal error or damage; 2: bad input, or a file that cannot be written; 130: interrupted; 141: the reader of stdout
    has gone. Other errors are raised.
    """
    try:
        code = work()
        sys.stdout.flush()
        return code
    except SuffolkError as error:
        print(f"{name}: {' '.join(str(error).split())}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as interrupt:
        print(" ".join([f"{name}: interrupted", *map(str, interrupt.args)]), file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of the output has gone (suffolk info | head)
        _silence_stdout()
        return 141
    except OSError as error:  # refused by the file system, such as output to a full disk
        print(
            f"{name}: {' '.join(str(error).split())}; check the path, its permissions and the free space",
            file=sys.stderr,
        )
        _silence_stdout()
        return 2


def _silence_stdout() -> None:
    """Discard unwritable output, which would otherwise raise an error at exit."""
    with suppress(OSError):
        sys.stdout.flush()  # still print the results if the failed file was another one
    with suppress(OSError, io.UnsupportedOperation):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
