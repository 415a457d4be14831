"""Runs a retrieval source of a hybrid only if it is expected to add enough tokens to the drafts of the sources before it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from suffolk.datastore import _native
from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.retrieval.retrieval_source import RetrievalSource, as_drafts
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest, Generated, PrefetchingDrafter, prefetches
from suffolk.serving.decoding.engine.policy.draft_gate import DraftGate

_GAIN = 1.0
"""Tokens that a source is expected to gain without others. It must be high enough that each source is tried."""


class GatedSource:
    """One retrieval source of a ``HybridDrafter``, behind a ``DraftGate``. Not thread-safe.

    Attributes:
        source: the source, which ``close`` closes.
        name: the source's name.
    """

    def __init__(self, source: RetrievalSource) -> None:
        self.source = source
        self.name = source.name
        self._prefetching = source if isinstance(source, PrefetchingDrafter) else None
        self._gate = DraftGate(_GAIN)
        self._drafts: dict[int, tuple[_native.Drafts, int, float]] = {}
        """For each request, its place in drafts, and the tokens expected of the sources before."""

    def draft(self, requests: Sequence[DraftRequest], expected: Sequence[float]) -> tuple[_native.Drafts, list[int]]:
        """The trees of ``RetrievalSource.draft`` for the requests that the gate lets draft, and the places of these
        requests.

        ``expected``: tokens expected of the sources before this one, for each of ``requests``.
        """
        running = [at for at, tokens in enumerate(expected) if self._gate.runs(requests[at].budget, tokens)]
        if not running:
            return _native.Drafts([]), running
        begin = time.perf_counter()
        drafts = as_drafts(self.source.draft([requests[at] for at in running]))
        self._gate.learn_cost((time.perf_counter() - begin) / len(running))
        for place, at in enumerate(running):
            self._drafts[requests[at].request_id] = drafts, place, expected[at]
        return drafts, running

    @property
    def prefetches(self) -> bool:
        """See ``PrefetchingDrafter``."""
        return prefetches(self._prefetching)

    def prefetch(self, requests: Sequence[DraftRequest], trees: Sequence[DraftTree]) -> None:
        """See ``PrefetchingDrafter``. Only requests for which the source drafts count."""
        drafted = [at for at, each in enumerate(requests) if each.request_id in self._drafts]
        if drafted and self._prefetching is not None:
            self._prefetching.prefetch([requests[at] for at in drafted], [trees[at] for at in drafted])

    def observe(self, generated: Generated, drafted: dict[int, int]) -> None:
        """Learn what the source added, and let it learn.

        ``drafted``: how many tokens of each request the sources before this one drafted. Adds this source's tokens.
        """
        self.source.observe(generated)
        found = [(each, *self._drafts.pop(each)) for each in generated if each in self._drafts]
        lengths = _native.accepted_lengths([(drafts, place, generated[each]) for each, drafts, place, _ in found])
        for (each, _, _, expected), length in zip(found, lengths, strict=True):
            before, alone = drafted[each], min(len(generated[each]) - 1, length)
            self._gate.added.learn(expected, max(0, alone - before), alone)
            drafted[each] = max(before, alone)

    def release(self, request_id: int) -> None:
        self._drafts.pop(request_id, None)
        self.source.release(request_id)

    def close(self) -> None:
        self.source.close()

    def stats(self) -> dict[str, float]:
        """The source's counters, and the requests for which it "ran" and was "skipped"."""
        return self.source.stats() | {"ran": self._gate.ran, "skipped": self._gate.skipped}
