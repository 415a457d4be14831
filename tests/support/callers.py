"""The caller of a service that a test calls in its own process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from suffolk.serving.net.identity import Identity, caller, set_caller


@contextmanager
def acting_as(identity: Identity) -> Iterator[None]:
    """Set ``caller()`` within a ``with`` block."""
    before = caller()
    set_caller(identity)
    try:
        yield
    finally:
        set_caller(before)
