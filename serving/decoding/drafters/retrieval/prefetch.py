"""Prefetches the next step's drafts from a remote datastore while the target runs its pass.

Measured gain: 12.7 % more tokens/s in hybrid, with a delay of 20 ms and passes of 30 ms (``python -m research.prefetching``,
commit 7561129; see ``docs/design/measured-drafting.md``).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import Unavailable
from suffolk.datastore.limits import MAX_BATCH, MAX_BATCH_NODES
from suffolk.datastore.retriever import MAX_NODES, AsyncRetriever
from suffolk.serving.decoding.drafters.retrieval.inflight_call import InflightCall, Query, likely_ends
from suffolk.serving.decoding.drafters.retrieval.limits import Limits
from suffolk.serving.decoding.drafters.retrieval.retrieval_scorer import Ids, known_end, nodes_wanted
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest

_BREADTH = 8
"""Nodes to prefetch for each node of a draft. Only the nodes below the sampled token are used later."""


class DraftPrefetcher:
    """Requests the drafts of a step before the step begins, and never waits for them. Not thread-safe.

    The node at which the target leaves a tree can be predicted. The token that the target samples there cannot. So for the
    most likely of these nodes, trees are requested that are one level deeper than a draft. The subtree below the sampled
    token is the next draft. A late answer is dropped. The next call is sent after the late answer has come.

    Attributes:
        prefetched: drafts that came in time.
        late: answers that came too late.
    """

    def __init__(self, retriever: AsyncRetriever, limits: Limits) -> None:
        self._retriever, self._limits = retriever, limits
        self._call = InflightCall(retriever, limits)
        self.prefetched = self.late = 0

    def prefetch(self, requests: Sequence[DraftRequest], trees: Sequence[DraftTree], lengths: Sequence[int]) -> None:
        """Request the drafts of the step after ``trees`` are verified, for endings of each of ``lengths`` tokens.

        Raises SuffolkError if the call cannot be sent.
        """
        if self._call.busy:
            return
        # the likeliest ends of all requests first, because a call is limited
        queries: dict[tuple[bytes, str | None], Query] = {}
        for paths in zip_longest(*map(likely_ends, trees)):
            for request, path in zip(requests, paths, strict=True):
                if path is not None:
                    text = np.concatenate([request.tokens[-self._limits.max_match :], path])
                    text = known_end(text, self._retriever.vocab_size)
                    parts = [text[1 - length :] for length in lengths if length > 1]
                    group = request.options.group
                    queries |= {(part.tobytes(), group): (part, group) for part in parts}
        chosen = list(queries.values())[:MAX_BATCH]
        if chosen:
            most = min(MAX_NODES, MAX_BATCH_NODES // len(chosen))
            self._call.send(chosen, min(_BREADTH * max(map(nodes_wanted, requests)), most))

    def draft(self, requests: Sequence[DraftRequest], endings: Sequence[Sequence[Ids]]) -> list[list[DraftTree]]:
        """The prefetched trees after the ``endings`` of each request; empty trees if no answer has come.

        Raises SuffolkError if the last call failed.
        """
        self._call.receive()
        found = [
            [self._call.found(ending, request.options.group, nodes_wanted(request)) for ending in each]
            for request, each in zip(requests, endings, strict=True)
        ]
        count = sum(any(trees) for trees in found)
        self.prefetched += count
        self.late += self._call.drop()
        if not count and not self._retriever.healthy:
            raise Unavailable("the last call to the datastore failed; drafts go on once one is answered")
        return found

    def durations(self) -> list[float]:
        """See ``InflightCall.durations``."""
        return self._call.durations()

    def stats(self) -> dict[str, float]:
        return {"prefetched": self.prefetched, "late": self.late}
