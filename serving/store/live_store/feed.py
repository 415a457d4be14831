"""The interface through which a store's changes reach its copies on other machines."""

from __future__ import annotations

from typing import Protocol

from suffolk.serving.store.live_store.record import Change


class ChangeFeed(Protocol):
    """Takes the changes of a store that has copies. The writer calls it under its lock, so in the order of the changes."""

    @property
    def leads(self) -> bool:
        """Whether changes begin at this store. A store that does not lead repeats those of another one."""
        ...

    def require_lead(self) -> None:
        """Refuse a change. Raises Unavailable: changes begin at another store."""
        ...

    def load(self, documents: Change) -> None:
        """Note documents that the store has when it is opened, the oldest first."""
        ...

    def publish(self, change: Change, body: bytes, position: int) -> None:
        """Pass a change on. ``body``: of its record in the log. ``position``: the number of the next change."""
        ...

    def clear(self) -> None:
        """Note that the store has no documents any more."""
        ...
