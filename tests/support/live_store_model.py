"""The documents of a live store as a plain list, with its bounds, for comparisons with the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from suffolk.serving.store.live_store.settings import LiveSettings


@dataclass(frozen=True)
class Kept:
    """A document: name, tokens, group, and the time of its append."""

    name: str
    tokens: tuple[int, ...]
    group: str | None
    time: int


@dataclass
class Clocks:
    """A system's clock, which jumps, and a steady clock, which does not."""

    wall: float = 1e9
    steady: float = 50.0

    def advance(self, seconds: int) -> None:
        self.wall += seconds
        self.steady += seconds


@dataclass
class StoreModel:
    """What a live store of ``settings`` holds in memory, the oldest document first. Nothing is published."""

    settings: LiveSettings
    documents: list[Kept] = field(default_factory=list)
    used: list[str] = field(default_factory=list)
    """Groups; the last one was used last."""

    def size(self, group: str | None = None) -> int:
        return sum(len(each.tokens) for each in self.documents if group is None or each.group == group)

    def append(self, added: Sequence[Kept], replace: bool) -> int:
        """Append documents of one group, or of none. Returns the number of documents that were removed."""
        group, before = added[0].group, len(self.documents)
        if replace:
            self.remove(lambda each: each.group == group)
        elif group is not None:
            self._make_room(group, sum(len(each.tokens) for each in added))
        gone = before - len(self.documents)
        self.documents += added
        self.use(group, True)
        return gone

    def use(self, group: str | None, appended: bool = False) -> None:
        if group is not None and (appended or group in self.used):
            self.used = [each for each in self.used if each != group] + [group]

    def remove(self, chosen: Callable[[Kept], bool]) -> None:
        self.documents = [each for each in self.documents if not chosen(each)]

    def evict(self, now: int) -> None:
        """What the background work does."""
        bound = self.settings.max_tokens
        excess = self.size() - bound + bound // 16 if bound and self.size() > bound else 0
        if self.settings.evict == "use":
            excess = self._evict_groups(excess)
        limit = now - self.settings.ttl_seconds if self.settings.ttl_seconds else None
        while self.documents and (excess > 0 or (limit is not None and self.documents[0].time < limit)):
            excess -= len(self.documents.pop(0).tokens)

    def reopen(self) -> None:
        """A restart forgets which groups were queried."""
        self.used = []
        for each in self.documents:
            self.use(each.group, True)

    def _make_room(self, group: str, added: int) -> None:
        """A full group is cut to 7/8 of its bound."""
        bound = self.settings.max_group_tokens
        left = max(added, bound - bound // 8)
        if self.size(group) + added > bound:
            for each in [each for each in self.documents if each.group == group]:
                if self.size(group) + added <= left:
                    break
                self.documents.remove(each)

    def _evict_groups(self, excess: int) -> int:
        """Remove the groups that were used the longest ago. Returns the tokens that are left to evict."""
        while excess > 0 and self.used:
            group = self.used.pop(0)
            excess -= self.size(group)
            self.remove(lambda each, group=group: each.group == group)  # type: ignore[misc]
        return excess
