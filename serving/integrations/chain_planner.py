"""Chooses requests to search remote datastores for, and cuts chains (drafts with one path), so that both save the host time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import RETRIEVED, DraftTree
from suffolk.datastore.tree_paths import accepted_length
from suffolk.serving.decoding.engine.costs.draft_budget import DraftCandidate
from suffolk.serving.decoding.engine.policy.acceptance_model import Estimate
from suffolk.serving.decoding.engine.policy.constants import TRIALS
from suffolk.serving.decoding.engine.policy.planner import Planner
from suffolk.serving.decoding.engine.policy.speculation_budget import UsualTime
from suffolk.serving.integrations.host_drafts import SOURCE as HOST
from suffolk.serving.integrations.linear_costs import LinearCosts

_DRAFTER = "retrieval"
Ids = npt.NDArray[np.int32]
Masks = npt.NDArray[np.bool_]
_GAIN = 0.3
"""Prior gain of a search for one request, in tokens."""


@dataclass(slots=True)
class _Sent:
    """A chain that the host verifies now.

    Attributes:
        searched: whether remote datastores were searched for it.
    """

    candidate: DraftCandidate
    chain: DraftTree
    searched: bool


class ChainPlanner:
    """Runs the engine's ``Planner`` on pass times measured between two steps of the host. Not thread-safe.

    Without ``row_cost``, drafting begins after the first timed pass, with a prior time of a row that later passes correct.
    """

    def __init__(
        self, row_cost: float | None = None, clock: Callable[[], float] = time.perf_counter, host_drafts: bool = False
    ) -> None:
        """``row_cost``: see ``IntegrationOptions``. ``host_drafts``: whether the host drafts too. The host's tokens
        have their own budget, so their losses do not pause retrieval.
        """
        self._clock, self._host_drafts = clock, host_drafts
        self._costs = LinearCosts(row_cost)
        self._planner = Planner(self._costs)
        self._gate = DatastoreGate()
        self._ready = row_cost is not None
        self._open: set[int] = set()
        self._sent: dict[int, _Sent] = {}
        self._unplanned = 0  # tokens that the host verifies for requests without chains
        # of drafting for one request, without rare interruptions: they would delay the pass if there were no drafting
        self._usual = UsualTime()
        self._left: float | None = None  # when the host's last pass began

    def begin(self, number: int) -> None:
        """Begin a request."""
        self._open.add(number)
        self._planner.open(number, _DRAFTER, self._host_drafts)
        self._gate.open(number)

    def end(self, number: int) -> None:
        """End a request. The outcome of its last draft is ignored."""
        if number in self._open:
            self._open.remove(number)
            self._sent.pop(number, None)
            self._planner.close(number)
            self._gate.close(number)

    def learn(self, generated: Mapping[int, Ids], context: float, timed: bool) -> None:
        """Learn from the host's last pass.

        Args:
            generated: new tokens of each request that decoded in the pass.
            context: mean context length of these requests, in tokens.
            timed: whether to learn the time of the pass, because it read no prompts.
        """
        if not generated:
            return
        seconds = self._clock() - self._left if timed and self._left is not None else 0.0
        self._ready |= seconds > 0
        sent = {number: self._sent.pop(number) for number in generated if number in self._sent}
        rows = len(generated) + self._unplanned + sum(each.candidate.verified for each in sent.values())
        for number, each in sent.items():
            tokens, candidate = generated[number], each.candidate
            accepted = min(accepted_length([each.chain.head(candidate.verified)], tokens), len(tokens) - 1)
            candidate.accept(np.arange(accepted), accepted)
        self._planner.record([each.candidate for each in sent.values()], len(generated), rows, context, seconds or None)
        row = self._costs.slope * len(generated) / self._costs.time(len(generated), len(generated), context)
        for number, each in sent.items():
            if each.searched:
                alone = each.chain.sources == RETRIEVED
                verified, accepted = each.candidate.verified, each.candidate.accepted
                self._gate.learn_gain(number, float(alone[:accepted].sum() - row * alone[:verified].sum()))

    def may_draft(self, number: int) -> bool:
        """Whether to draft for a request in this step. Call once per step and request."""
        return self._planner.may_draft(number) and self._ready

    def choose_searched(self, numbers: Sequence[int], requests: int, context: float) -> Set[int]:
        """Return the requests among ``numbers`` to search remote datastores for, in a step of ``requests`` requests.

        An accepted token frees the request's place in the batch earlier. It saves the request's share of a pass if another
        request takes that place. If none waits, it saves one row. The mean of both savings is used.
        """
        seconds = self._costs.time(requests, requests, context)
        row = seconds if requests == 1 else self._costs.slope
        return self._gate.choose(numbers, (row + seconds / requests) / 2, seconds)

    def cut(
        self,
        chains: Mapping[int, DraftTree],
        searched: Set[int],
        requests: int,
        context: float,
        seconds: float,
        least: Mapping[int, int] = MappingProxyType({}),
    ) -> dict[int, DraftTree]:
        """Return the chains, truncated to the tokens to verify.

        Args:
            searched: requests for which remote datastores were searched.
            requests: requests that decode in the pass.
            context: mean context length of the requests, in tokens.
            seconds: time to draft all ``chains``.
            least: tokens that the host verifies for each request in any case, also for requests without chains.
        """
        if searched:
            self._gate.learn_time(len(searched), seconds)
        if chains and not searched:  # the gate limits the time of searches
            self._usual.add(seconds / len(chains))
        own = 0.0 if searched else self._usual.seconds
        self._sent = {}
        for number, chain in chains.items():
            candidate = DraftCandidate(number, chain.scores, chain.sources == HOST if self._host_drafts else None, own)
            self._sent[number] = _Sent(candidate, chain, number in searched)
        self._planner.size_trees([each.candidate for each in self._sent.values()], requests, requests, context)
        for number, each in self._sent.items():
            each.candidate.verified = max(each.candidate.verified, min(len(each.chain), least.get(number, 0)))
        self._unplanned = sum(size for number, size in least.items() if number not in chains)
        return {number: each.chain.head(each.candidate.verified) for number, each in self._sent.items()}

    def leave(self) -> None:
        """Note that the host's next pass begins."""
        self._left = self._clock()


def best_chain(tree: DraftTree, most: int) -> DraftTree:
    """Return the path of ``tree`` with the highest expected number of accepted tokens, as a chain of up to ``most`` nodes.

    A node's score is the probability that its path is accepted. The expected number of a chain is the sum of its
    scores.
    """
    parents, scores = tree.parents.tolist(), tree.scores.tolist()
    depths: list[int] = []
    for parent in parents:
        depths.append(1 if parent < 0 else depths[parent] + 1)
    values = [0.0] * (len(parents) + 1)  # largest sum below each node; the last entry is for the root
    follow = [-1] * (len(parents) + 1)
    for node in range(len(parents) - 1, -1, -1):  # children come after their parents
        value, parent = scores[node] + values[node], parents[node]
        if depths[node] <= most and value > values[parent]:
            values[parent], follow[parent] = value, node
    path = []
    node = follow[-1]
    while node >= 0:
        path.append(node)
        node = follow[node]
    kept = np.asarray(path, np.intp)
    before = np.arange(-1, len(path) - 1, dtype=np.int32)
    return DraftTree(tree.tokens[kept], before, tree.scores[kept], tree.sources[kept])


def masked_tree(tree: DraftTree, last: int, width: int) -> tuple[Ids, Masks]:
    """Return the first ``width - 1`` nodes of ``tree`` after node 0, which is the text's ``last`` token.

    Returns:
        int32[width], tokens with parents before children, and bool[width, width], whether a node (row) attends to
        another: itself, its ancestors and node 0. Unused nodes have token 0 and are children of node 0.
    """
    nodes = tree.head(width - 1)
    tokens = np.zeros(width, np.int32)
    tokens[0] = last
    tokens[1 : len(nodes) + 1] = nodes.tokens
    mask = np.eye(width, dtype=np.bool_)
    mask[:, 0] = True
    for node, parent in enumerate(nodes.parents.tolist(), 1):
        if parent >= 0:
            mask[node] |= mask[parent + 1]
    return tokens, mask


class DatastoreGate:
    """Chooses the requests to search for: those whose recent searches saved more time than they took. Not thread-safe.

    Rare trials search for all requests. They spend a budget, a share of the time of all passes (TRIALS). A new request
    starts with the mean gain of all requests.
    """

    def __init__(self) -> None:
        self._costs = LinearCosts(seconds=1e-9)  # nearly 0, so the first step searches
        self._overall = Estimate(_GAIN)
        self._gains: dict[int, Estimate] = {}
        self._saved = 0.0

    def open(self, number: int) -> None:
        """Start a request."""
        self._gains[number] = Estimate(self._overall.value)

    def close(self, number: int) -> None:
        """End a request."""
        del self._gains[number]

    def choose(self, numbers: Sequence[int], token_seconds: float, pass_seconds: float) -> Set[int]:
        """Return the requests among ``numbers`` to search for. Call once per step.

        Args:
            token_seconds: time that an accepted token saves.
            pass_seconds: time of the pass without drafts.
        """
        if not numbers:
            return set()
        gains = {number: self._gains[number].value * token_seconds for number in numbers}
        every = self._time(len(numbers))
        chosen = {number for number, gain in gains.items() if gain >= every / len(numbers)}
        if sum(gains[number] for number in chosen) < self._time(len(chosen)):
            chosen = set()
        self._saved += TRIALS * pass_seconds
        if len(chosen) == len(numbers) or self._saved < every - self._time(len(chosen)):
            return chosen
        self._saved = 0.0
        return set(numbers)

    def learn_time(self, requests: int, seconds: float) -> None:
        """Learn that a search for ``requests`` requests took ``seconds``."""
        self._costs.update(requests, requests, 0.0, seconds)

    def learn_gain(self, number: int, tokens: float) -> None:
        """Learn the gain of a search: accepted tokens that only datastores drafted, less the time of their rows.

        Tokens that a local datastore drafted as well also count, because they cannot be told apart.
        """
        self._gains[number].add(tokens)
        self._overall.add(tokens)

    def _time(self, requests: int) -> float:
        return self._costs.time(requests, requests, 0.0) if requests else 0.0
