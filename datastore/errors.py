"""The closed set of errors, the same in C++, Python and gRPC.

A message names the file or field, the value, the limit, and the next step. The command line prints it on one line and exits
with the error's ``exit_code``.
"""

from __future__ import annotations

from typing import ClassVar


class SuffolkError(Exception):
    """Base of every error that Suffolk raises on purpose."""

    exit_code: ClassVar[int] = 2


class InvalidArgument(SuffolkError, ValueError):
    """A value from the caller is out of bounds."""


class NotFound(SuffolkError, LookupError):
    """A named file, datastore, document or model does not exist."""


class Corruption(SuffolkError):
    """A Suffolk file is damaged, truncated or of the wrong kind."""


class Unsupported(SuffolkError):
    """A format version, feature, tokenizer or model that this version cannot work with."""


class ResourceExhausted(SuffolkError):
    """Disk space or memory is used up, or a server's limit is reached.

    Attributes:
        retry_seconds: when the same call may succeed; None if it would fail again.
    """

    def __init__(self, *args: object, retry_seconds: float | None = None) -> None:
        super().__init__(*args)
        self.retry_seconds = retry_seconds


class Unavailable(SuffolkError):
    """A service cannot be reached, or is shutting down."""


class DeadlineExceeded(SuffolkError):
    """A call took longer than allowed."""


class PermissionDenied(SuffolkError):
    """The caller may not do this."""


class Internal(SuffolkError):
    """A fault in Suffolk itself."""

    exit_code: ClassVar[int] = 1


def damaged(path: object, problem: str) -> Corruption:
    """The error for a damaged or missing file of a datastore."""
    return Corruption(f"{path} {problem}; restore it from a copy, or build the datastore again")


ALL_ERRORS = tuple(SuffolkError.__subclasses__())
"""Every class of error above."""
