"""Runs a retrieval source of a hybrid only if it is expected to add enough tokens to the drafts of the sources before it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.tree_paths import accepted_length
from suffolk.serving.decoding.drafters.retrieval.retrieval_source import RetrievalSource
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
        self._drafts: dict[int, tuple[float, list[DraftTree]]] = {}  # expected tokens of the sources before, and trees

    def draft(self, requests: Sequence[DraftRequest], expected: Sequence[float]) -> list[list[DraftTree]]:
        """The trees of ``RetrievalSource.draft``; none for requests against which the gate decides.

        ``expected``: tokens expected of the sources before this one, for each of ``requests``.
        """
        running = [at for at, tokens in enumerate(expected) if self._gate.runs(requests[at].budget, tokens)]
        found: list[list[DraftTree]] = [[] for _ in requests]
        if running:
            begin = time.perf_counter()
            drafts = self.source.draft([requests[at] for at in running])
            self._gate.learn_cost((time.perf_counter() - begin) / len(running))
            for at, trees in zip(running, drafts, strict=True):
                found[at] = trees
                self._drafts[requests[at].request_id] = (expected[at], trees)
        return found

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

        ``drafted``: how many of the tokens of each request the sources before this one drafted. Adds those of this source.
        """
        self.source.observe(generated)
        for request_id, tokens in generated.items():
            draft = self._drafts.pop(request_id, None)
            if draft is not None:
                expected, trees = draft
                before, alone = drafted[request_id], min(len(tokens) - 1, accepted_length(trees, tokens))
                self._gate.added.learn(expected, max(0, alone - before), alone)
                drafted[request_id] = max(before, alone)

    def release(self, request_id: int) -> None:
        self._drafts.pop(request_id, None)
        self.source.release(request_id)

    def close(self) -> None:
        self.source.close()

    def stats(self) -> dict[str, float]:
        """The source's counters, and the requests for which it "ran" and was "skipped"."""
        return self.source.stats() | {"ran": self._gate.ran, "skipped": self._gate.skipped}
