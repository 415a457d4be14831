"""Drafts that were not begun because they did not pay: never too many in a row."""

from __future__ import annotations

_MOST = 100
"""After so many a draft is begun all the same, so that a wrong opinion does not last for ever."""


class Refusals:
    """Those since a draft was last begun. Not thread-safe."""

    def __init__(self) -> None:
        self._count = 0

    def begins(self, pays: bool) -> bool:
        """Whether to begin a draft, by whether it ``pays``; counts."""
        begins = pays or self._count >= _MOST
        self._count = 0 if begins else self._count + 1
        return begins
