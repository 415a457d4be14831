"""A drafting network beside retrieval: asked where it should add enough to what was retrieved."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from datastore.draft_tree import DraftTree
from serving.decoding.drafter import Drafter, DraftRequest, tree_of
from serving.drafters.reach import reach
from serving.drafters.worth import Worth


@dataclass(frozen=True, slots=True)
class _Draft:
    promised: float
    retrieved: DraftTree
    own: DraftTree


class Network:
    """One network of a ``HybridDrafter``. Not thread-safe.

    Attributes:
        drafter: the network's own drafter; ``name``: its name.
    """

    def __init__(self, drafter: Drafter) -> None:
        """Takes over ``drafter``: ``close`` closes it."""
        self.drafter = drafter
        self.name = drafter.name
        self._worth = Worth()
        self._drafts: dict[int, _Draft] = {}

    def add(self, requests: Sequence[DraftRequest], retrieved: Sequence[DraftTree]) -> list[list[DraftTree]]:
        """The network's trees for ``requests``, for which ``retrieved`` is there already; none where that is enough."""
        promised = [float(tree.scores.sum()) for tree in retrieved]
        asked = [
            place for place, request in enumerate(requests) if self._worth.pays(promised[place], request.token_seconds)
        ]
        trees: list[list[DraftTree]] = [[] for _ in requests]
        if asked:
            begin = time.perf_counter()
            found = self.drafter.propose([requests[place] for place in asked])
            self._worth.learn_cost((time.perf_counter() - begin) / len(asked))
            for place, proposal in zip(asked, found, strict=True):
                tree = tree_of(proposal)
                trees[place].append(tree)
                self._drafts[requests[place].request_id] = _Draft(promised[place], retrieved[place], tree)
        return trees

    def observe(self, request_id: int, tokens: npt.NDArray[np.int32]) -> None:
        """Learn what the network added, and let it learn."""
        draft = self._drafts.pop(request_id, None)
        if draft is not None:
            most = len(tokens) - 1
            with_it = max(reach(draft.retrieved, tokens), reach(draft.own, tokens))
            gained = min(most, with_it) - min(most, reach(draft.retrieved, tokens))
            self._worth.learn(draft.promised, gained)
            self.drafter.observe(request_id, tokens)

    def release(self, request_id: int) -> None:
        self._drafts.pop(request_id, None)
        self.drafter.release(request_id)

    def stats(self) -> dict[str, float]:
        """The drafter's counters, and for how many drafts it was run and left out."""
        return self.drafter.stats() | {"asked": self._worth.asked, "skipped": self._worth.skipped}

    def close(self) -> None:
        self._drafts.clear()
        self.drafter.close()
