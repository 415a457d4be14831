"""Drafts from a datastore, in this process or behind gRPC (REST, He et al. 2023, section 3)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from datastore.draft_tree import DraftTree
from datastore.errors import SuffolkError
from datastore.retriever import Retriever
from serving.decoding.drafter import DraftRequest
from serving.drafters.calibration.calibration import Calibration
from serving.drafters.calibration.calibrator import Prior
from serving.drafters.limits import Limits
from serving.drafters.merge import merge
from serving.drafters.retrieved import NO_TOKENS, Behind, Ids, Retrieved

log = logging.getLogger(__name__)

PRIOR = Prior(constant=-2.5, match=0.45, share=0.95, count=0.2, depth=0.25)
"""Fitted to what a 135M chat model took of 109 M tokens of source in its own greedy answers; only where it starts."""

SHORT_MATCHES = (4, 3, 2, 1)
"""Shorter endings that are looked up beside the longest: a rare long match leaves most of a tree's nodes unused, and may be no more
than chance; what follows a shorter ending elsewhere fills them. Calibration weighs one against the other."""


class DatastoreDrafter:
    """One ``draft_batch`` call for all requests of a step. A fault costs the step's drafts: counted by reason, logged once each.
    Not thread-safe."""

    name = "datastore"

    def __init__(
        self,
        retriever: Retriever,
        vocab_size: int,
        limits: Limits | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        """``vocab_size``: the target's; a tree with other ids is a missed draft. ``calibration``: what drafts have been worth,
        which it goes on learning under the datastore's name. ``close`` leaves ``retriever`` open."""
        self._retriever = retriever
        self._vocab_size = vocab_size
        self._limits = limits or Limits()
        self._lengths = tuple(n for n in SHORT_MATCHES if self._limits.min_match <= n < self._limits.max_match)
        self._retrieved = Retrieved((calibration or Calibration()).text(f"{self.name} {retriever.name}", PRIOR))
        self._calls = 0
        self._lost = False  # whether the last call got no answer
        self.missed: Counter[str] = Counter()

    def propose(self, requests: Sequence[DraftRequest]) -> list[DraftTree]:
        found = self.scored(requests)
        return [merge(trees, request.max_nodes) for request, trees in zip(requests, found, strict=True)]

    def scored(self, requests: Sequence[DraftRequest]) -> list[list[DraftTree]]:
        """See ``ScoringDrafter``: of the longest match, and of those of ``SHORT_MATCHES`` that are shorter."""
        self._calls += 1
        lengths = (self._limits.max_match, *self._lengths)
        contexts = [request.tokens[-length:] for request in requests for length in lengths]
        trees = iter(self._ask(contexts, [request.max_nodes for request in requests for _ in lengths]))
        found = []
        for request in requests:
            self._retrieved.begin(request)
            longest, *shorter = [next(trees) for _ in lengths]
            asked = [longest, *(tree for tree in shorter if tree.match_length < longest.match_length)]
            found.append(self._accept(request, [Behind(NO_TOKENS, tree) for tree in asked]))
        return found

    def behind(self, requests: Sequence[DraftRequest], paths: Sequence[Sequence[Ids]]) -> list[list[DraftTree]]:
        """See ``ScoringDrafter``; empty trees where ``scored`` could not be answered just before."""
        if self._lost:
            return [[DraftTree.empty()] * len(each) for each in paths]
        most = self._limits.max_match
        asked = [(request, path) for request, each in zip(requests, paths, strict=True) for path in each]
        contexts = [np.concatenate([request.tokens[-most:], path])[-most:] for request, path in asked]
        trees = iter(self._ask(contexts, [request.max_nodes for request, _ in asked]))
        return [
            self._accept(request, [Behind(path, next(trees)) for path in each])
            for request, each in zip(requests, paths, strict=True)
        ]

    def observe(self, request_id: int, tokens: npt.NDArray[np.int32]) -> None:
        self._retrieved.observe(request_id, tokens)

    def release(self, request_id: int) -> None:
        self._retrieved.release(request_id)

    def stats(self) -> dict[str, float]:
        counters: dict[str, float] = {"calls": self._calls, "missed": self.missed.total()}
        return counters | {f"missed {reason}": count for reason, count in self.missed.items()}

    def close(self) -> None:
        self._retrieved.clear()

    def _ask(self, contexts: list[Ids], budgets: list[int]) -> list[DraftTree]:
        """The tree of each context; empty ones if they cannot be had."""
        limits = self._limits
        try:
            trees = self._retriever.draft_batch(contexts, limits.max_match, limits.min_match, limits.max_depth, budgets)
            self._lost = len(trees) != len(contexts)
            if not self._lost:
                return trees
            self._miss("Internal", f"{len(trees)} trees came for {len(contexts)} contexts")
        except SuffolkError as error:
            self._lost = True
            self._miss(type(error).__name__, str(error))
        return [DraftTree.empty()] * len(contexts)

    def _accept(self, request: DraftRequest, found: list[Behind]) -> list[DraftTree]:
        """Their trees with scores, if all are sound; empty ones if not."""
        try:
            for each in found:
                each.tree.validate(self._vocab_size)
            return self._retrieved.scored(request, found)
        except SuffolkError as error:
            self._miss(type(error).__name__, str(error))
            return [DraftTree.empty()] * len(found)

    def _miss(self, reason: str, message: str) -> None:
        if not self.missed[reason]:
            log.warning("datastore drafter: %s; going on without its drafts", message)
        self.missed[reason] += 1
