"""The slots of the cache. A free slot keeps the rows of its last text, and a later prompt may take them over."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.model.kv_cache import KVCache

LEAST_REUSED = 16
"""The least number of shared tokens whose rows are reused. Fewer save no time."""
_CONTINUED = 0.5
"""If a prompt begins with at least this share of a free slot's tokens, the request takes this slot. Otherwise the rows are
copied."""

Ids = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class _Contents:
    """The tokens whose rows a free slot holds, and their tenant. No tokens if the request must not be remembered."""

    tokens: Ids
    tenant: str


@dataclass(frozen=True, slots=True)
class _Leader:
    """A running request. Another request copies the cache rows of this request's first ``shared`` tokens as
    soon as they are read."""

    request: Request
    shared: int


_NOTHING = _Contents(np.empty(0, np.int32), "")


class Slots:
    """Gives slots to requests. If a prompt begins like another text of its tenant, the request takes over the cache rows of
    this text.

    The text belongs to a running request, or to a request that has left and whose slot is free. So free slots serve as a cache.
    A request that does not continue the text of a free slot gets the free slot whose rows were used least recently. Requests that
    need the logits or hidden states of their whole prompt take no rows over. Rows of requests that must not be remembered are not
    taken over. Not thread-safe.
    """

    def __init__(self, cache: KVCache, reuses: bool, takes_lowest: bool = False) -> None:
        """
        Args:
            reuses: whether rows are taken over at all.
            takes_lowest: a request gets the lowest free slot, whatever it holds, because passes of static shape run over slots 0 to
                n - 1.
        """
        self._cache = cache
        self._reuses = reuses
        self._takes_lowest = takes_lowest or not reuses
        self._left: OrderedDict[int, _Contents] = OrderedDict.fromkeys(range(cache.slots), _NOTHING)  # the oldest first
        self._leaders: dict[int, _Leader] = {}  # by number of the request that follows

    @property
    def free(self) -> int:
        """How many slots are free."""
        return len(self._left)

    def take(self, request: Request, running: Iterable[Request], reads_all: bool) -> None:
        """Give ``request`` a slot, with the rows that it takes over.

        Args:
            running: the other running requests.
            reads_all: whether the request needs passes over its whole prompt. Then it takes no rows over.
        """
        prompt = request.tokens[: request.length - 1]  # the last token is always read, for its logits
        source, shared = None, 0
        if self._reuses and not reads_all:
            source, shared = self._best_left(prompt, request.options.tenant)
            leader = self._best_running(prompt, request, running)
            if leader is not None and leader.shared > shared:
                self._leaders[request.number] = leader
                source = None
        slot = self._choose(source, shared)
        if source is None:
            self._cache.clear(slot)
        else:
            if source != slot:
                self._left.move_to_end(source)  # used last, so kept longest
                self._cache.copy(source, slot, 0, shared)
            self._cache.lengths[slot] = request.stats.cached_tokens = shared
        del self._left[slot]
        request.slot = slot

    def awaits_prefix(self, request: Request) -> bool:
        """Take over the leader's rows that exist already. Returns whether ``request`` still waits for rows of the leader."""
        leader = self._leaders.get(request.number)
        if leader is None:
            return False
        self._follow(request, leader)
        if self._cache.lengths[request.slot] >= leader.shared:
            del self._leaders[request.number]
            return False
        return True

    def give_back(self, request: Request, running: Sequence[Request]) -> None:
        """Free the slot of ``request``, which has left. ``running``: the requests that still run."""
        self._leaders.pop(request.number, None)
        for each in running:
            leader = self._leaders.get(each.number)
            if leader is not None and leader.request is request:
                self._follow(each, leader)
                del self._leaders[each.number]
        contents = _NOTHING
        if self._reuses and request.options.remember:
            contents = _Contents(request.tokens[: self._readable(request)].copy(), request.options.tenant)
        self._left[request.slot] = contents
        if not len(contents.tokens):
            self._left.move_to_end(request.slot, last=False)

    def _follow(self, request: Request, leader: _Leader) -> None:
        begin, end = int(self._cache.lengths[request.slot]), min(leader.shared, self._readable(leader.request))
        if begin < end:
            self._cache.copy(leader.request.slot, request.slot, begin, end)
            request.stats.cached_tokens += end - begin

    def _readable(self, request: Request) -> int:
        """The tokens of ``request`` whose rows its slot holds."""
        return min(int(self._cache.lengths[request.slot]), request.length)

    def _best_left(self, prompt: Ids, tenant: str) -> tuple[int | None, int]:
        """The free slot whose text shares the longest beginning with ``prompt``, and the number of shared tokens."""
        best, shared = None, LEAST_REUSED - 1
        for slot, contents in self._left.items():
            if contents.tenant == tenant and (size := common_prefix(prompt, contents.tokens)) > shared:
                best, shared = slot, size
        return best, shared if best is not None else 0

    def _best_running(self, prompt: Ids, request: Request, running: Iterable[Request]) -> _Leader | None:
        best, shared = None, LEAST_REUSED - 1
        for each in running:
            options = each.options
            if options.remember and options.tenant == request.options.tenant:
                size = common_prefix(prompt, each.tokens[: each.length])
                if size > shared:
                    best, shared = each, size
        return None if best is None else _Leader(best, shared)

    def _choose(self, source: int | None, shared: int) -> int:
        if self._takes_lowest:
            return min(self._left)
        if source is not None and shared >= _CONTINUED * len(self._left[source].tokens):
            return source
        return next(iter(self._left))


def common_prefix(one: Ids, other: Ids) -> int:
    """The number of first tokens that ``one`` and ``other`` share."""
    size = min(len(one), len(other))
    if not size or one[0] != other[0]:
        return 0
    different = one[:size] != other[:size]
    first = int(different.argmax())
    return first if different[first] else size
