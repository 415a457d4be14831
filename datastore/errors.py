"""The closed set of errors, the same in C++, Python and gRPC.

A message names the file or field, the value, the limit, and the next step. The command line prints it on one line and exits
with the error's ``exit_code``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

Change = Literal["none", "unknown"]
WORKER = ("torch", "transformers", "safetensors")
_CLUSTERS = ("ray", "aiohttp")


class Field(str):
    """An argument, or a field of a request, as a part of a message: max_nodes, messages[0].content.

    A transport may replace this name by its own name of the field.
    """


class SuffolkError(Exception):
    """Base of every error that Suffolk raises on purpose.

    Args:
        parts: the parts of the message, which are joined.
        change: what the failed call has changed: nothing, or it is unknown.
        retry_seconds: seconds after which the same call may succeed. None: it would fail again, or nothing is known.
    """

    exit_code: ClassVar[int] = 2

    def __init__(self, *parts: object, change: Change = "unknown", retry_seconds: float | None = None) -> None:
        super().__init__(*parts)
        self.change = change
        self.retry_seconds = retry_seconds

    def __str__(self) -> str:
        return "".join(map(str, self.args))

    @property
    def field(self) -> str | None:
        """The wrong argument or field: the first that the message names."""
        return next((str(part) for part in self.args if isinstance(part, Field) and part), None)

    def rename(self, names: Mapping[str, str]) -> None:
        """Replace names of fields as in ``names``."""
        self.args = tuple(_renamed(part, names) if isinstance(part, Field) else part for part in self.args)

    def extend(self, before: str = "", after: str = "") -> None:
        """Add text before and after the message."""
        self.args = (before, *self.args, after)

    def replace(self, old: str, new: str) -> None:
        """Replace ``old`` by ``new`` in the message. ``old`` may be a path that callers must not see."""
        self.args = tuple(part if isinstance(part, Field) else str(part).replace(old, new) for part in self.args)


class InvalidArgument(SuffolkError, ValueError):
    """A value from the caller is out of bounds."""


class NotFound(SuffolkError, LookupError):
    """A named file, datastore, document or model does not exist."""


class Corruption(SuffolkError):
    """A Suffolk file is damaged, truncated or of the wrong kind."""


class Unsupported(SuffolkError):
    """A format version, feature, tokenizer or model that this version cannot work with."""


class ResourceExhausted(SuffolkError):
    """Disk space or memory is used up, or a server's limit is reached."""


class Unavailable(SuffolkError):
    """A service cannot be reached, or is shutting down."""


class DeadlineExceeded(SuffolkError):
    """A call took longer than allowed."""


class PermissionDenied(SuffolkError):
    """The caller may not do this."""


class Internal(SuffolkError):
    """A bug in Suffolk."""

    exit_code: ClassVar[int] = 1


def _renamed(field: Field, names: Mapping[str, str]) -> Field:
    name, bracket, rest = field.partition("[")
    return Field(names.get(name, name) + bracket + rest)


def damaged(path: object, problem: str) -> Corruption:
    """The error for a damaged or missing file of a datastore."""
    return Corruption(f"{path} {problem}; restore it from a copy, or build the datastore again")


ALL_ERRORS = tuple(SuffolkError.__subclasses__())
"""Every class of error above."""


def missing_extra(error: ImportError) -> Unsupported | None:
    """The error for a missing package of the extras ``worker`` and ``ray``; None if another module is missing."""
    package = (error.name or "").partition(".")[0]
    if package not in WORKER + _CLUSTERS:
        return None
    users, extra = ("models", "worker") if package in WORKER else ("clusters", "ray")
    return Unsupported(f"{package} is not installed, and {users} need it; pip install 'suffolk[{extra}]'")
