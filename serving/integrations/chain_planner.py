"""Chooses chain lengths: drafted tokens must save more time than they add to the host's pass. Chains may be empty."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.drafters.hybrid.accepted_length import accepted_length
from suffolk.serving.engine.costs.cost_model import CostModel
from suffolk.serving.engine.loop.draft_candidate import DraftCandidate
from suffolk.serving.engine.policy.planner import Planner
from suffolk.serving.integrations.linear_costs import LinearCosts

_TRIALS = (0, 2, 4, 8)
"""Numbers of drafted tokens in the trial passes."""
_TIMES = 3
"""Timed passes of each size."""
_SLOW = 2.0
"""Larger trials are skipped once a pass takes this many times as long as a pass without drafts."""
_DRAFTER = "retrieval"
Ids = npt.NDArray[np.int32]


@dataclass(slots=True)
class _Sent:
    """A chain that the host verifies now."""

    candidate: DraftCandidate
    chain: DraftTree


class ChainPlanner:
    """Runs the engine's ``Planner`` on pass times measured between two steps of the host. Not thread-safe.

    The first passes are trials (``FirstCosts``). Later passes refine the costs.
    """

    def __init__(self, row_cost: float | None = None, clock: Callable[[], float] = time.perf_counter) -> None:
        """``row_cost``: see ``IntegrationOptions``. If ``row_cost`` is set, no pass is timed."""
        self._clock = clock
        self._first = FirstCosts() if row_cost is None else None
        self._planner = None if row_cost is None else Planner(_linear(row_cost))
        self._timed = row_cost is None
        self._open: set[int] = set()
        self._sent: dict[int, _Sent] = {}
        self._left: float | None = None  # when the last step ended

    def begin(self, number: int) -> None:
        """Begin a request."""
        self._open.add(number)
        if self._planner is not None:
            self._planner.open(number, _DRAFTER)

    def end(self, number: int) -> None:
        """End a request. The outcome of its last draft is ignored."""
        if number in self._open:
            self._open.remove(number)
            self._sent.pop(number, None)
            if self._planner is not None:
                self._planner.close(number)

    def learn(self, generated: Mapping[int, Ids], context: float, timed: bool) -> None:
        """Learn from the host's last pass.

        Args:
            generated: new tokens of each request that decoded in the pass.
            context: mean context length of these requests, in tokens.
            timed: whether the pass read no prompts.
        """
        if not generated:
            return
        seconds = self._clock() - self._left if self._timed and timed and self._left is not None else None
        sent = {number: self._sent.pop(number) for number in generated if number in self._sent}
        rows = len(generated) + sum(each.candidate.verified for each in sent.values())
        if self._first is not None and seconds is not None:
            self._first.add(len(generated), rows, seconds)
            self._adopt(self._first.model(len(generated)))
        if self._planner is None:
            return
        for number, each in sent.items():
            tokens, candidate = generated[number], each.candidate
            candidate.accepted = min(accepted_length(each.chain.head(candidate.verified), tokens), len(tokens) - 1)
        self._planner.record([each.candidate for each in sent.values()], len(generated), rows, context, seconds)

    def may_draft(self, number: int) -> bool:
        """Whether to draft for a request in this step. Call once per step."""
        return self._planner is None or self._planner.may_draft(number)

    def cut(
        self, chains: Mapping[int, DraftTree], requests: int, context: float, seconds: float
    ) -> dict[int, DraftTree]:
        """Return the chains, truncated to the tokens to verify. ``seconds``: drafting time."""
        self._sent = {}
        for number, chain in chains.items():
            candidate = DraftCandidate(number, chain.scores, np.zeros(len(chain), np.bool_), seconds / len(chains))
            self._sent[number] = _Sent(candidate, chain)
        candidates = [each.candidate for each in self._sent.values()]
        if self._planner is not None and candidates:
            self._planner.size_trees(candidates, requests, requests, context)
        elif self._first is not None:
            left = self._first.trial(requests)
            for each in candidates:
                each.verified = min(left, len(each.scores))
                left -= each.verified
        return {number: each.chain.head(each.candidate.verified) for number, each in self._sent.items()}

    def leave(self) -> None:
        """Note that the host's next pass begins."""
        self._left = self._clock()

    def _adopt(self, costs: CostModel | None) -> None:
        """Start planning with ``costs``."""
        if costs is not None:
            self._first, self._planner = None, Planner(costs)
            for number in self._open:
                self._planner.open(number, _DRAFTER)


class FirstCosts:
    """Times a host's first passes, without drafts and with a few more rows. Not thread-safe.

    Sizes alternate. The fastest pass of each size counts, because the first pass of a new shape is slow and other load
    disturbs passes. Larger sizes are skipped while a smaller size takes twice the time of a pass without drafts. Only
    passes with the same number of requests are compared.
    """

    def __init__(self) -> None:
        self._seconds: defaultdict[int, dict[int, list[float]]] = defaultdict(lambda: {size: [] for size in _TRIALS})

    def trial(self, requests: int) -> int:
        """The number of drafted tokens for the next pass of ``requests`` requests."""
        seconds = self._seconds[requests]
        return min(self._sizes(requests), key=lambda size: len(seconds[size]))

    def add(self, requests: int, rows: int, seconds: float) -> None:
        """Add a pass. A pass whose size is not a trial size counts for the next smaller trial size."""
        self._seconds[requests][max(size for size in _TRIALS if size <= rows - requests)].append(seconds)

    def model(self, requests: int) -> CostModel | None:
        """The costs, from passes of ``requests`` requests. None until all sizes are timed."""
        sizes = self._sizes(requests)
        if len(sizes) < 2 or any(len(self._seconds[requests][size]) < _TIMES for size in sizes):
            return None
        times = [min(self._seconds[requests][size]) for size in sizes]
        return LinearCosts(np.array(sizes, np.float64) + requests, np.array(times))

    def _sizes(self, requests: int) -> list[int]:
        """The sizes to time, up to the first that is too expensive."""
        seconds = self._seconds[requests]
        plain = min(seconds[0], default=np.inf)
        slow = (size for size in _TRIALS if size and min(seconds[size], default=0.0) > _SLOW * plain)
        last = next(slow, _TRIALS[-1])
        return [size for size in _TRIALS if size <= last]


def _linear(row_cost: float) -> CostModel:
    """Create costs: 1 for a pass of one row, and ``row_cost`` for each further row."""
    return CostModel([1, 2], [1, 1 + row_cost])
