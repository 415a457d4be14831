"""The closed set of errors, the same in C++, Python and gRPC.

A message names the file or field, the value, the limit, and the next thing to try. The command line prints the message of
any ``SuffolkError`` on one line and exits with its ``exit_code``.
"""

from __future__ import annotations

from typing import ClassVar


class SuffolkError(Exception):
    """Base of every error that Suffolk raises on purpose."""

    exit_code: ClassVar[int] = 2


class InvalidArgument(SuffolkError, ValueError):
    """A value the caller gave is out of its bounds."""


class NotFound(SuffolkError, LookupError):
    """A file, datastore, document or model that was named does not exist."""


class Corruption(SuffolkError):
    """A Suffolk file is damaged, truncated or of the wrong kind."""


class Unsupported(SuffolkError):
    """A format version, feature, tokenizer or model that this version cannot work with."""


class ResourceExhausted(SuffolkError):
    """Disk, memory, or a server's limit is used up."""


class Unavailable(SuffolkError):
    """A service cannot be reached, or is shutting down."""


class DeadlineExceeded(SuffolkError):
    """The time allowed for a call is over."""


class PermissionDenied(SuffolkError):
    """The caller may not do this."""


class Internal(SuffolkError):
    """A fault in Suffolk itself."""

    exit_code: ClassVar[int] = 1


def damaged(path: object, problem: str) -> Corruption:
    """The error for a file of a datastore that cannot be used as it is."""
    return Corruption(f"{path} {problem}; restore it from a copy, or build the datastore again")


ALL_ERRORS: tuple[type[SuffolkError], ...] = (
    InvalidArgument,
    NotFound,
    Corruption,
    Unsupported,
    ResourceExhausted,
    Unavailable,
    DeadlineExceeded,
    PermissionDenied,
    Internal,
)
