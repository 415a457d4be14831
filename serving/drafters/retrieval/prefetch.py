"""Drafts of the next step, on their way while the target runs its pass: for a datastore behind a network."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import Unavailable
from suffolk.datastore.retriever import MAX_NODES
from suffolk.serving.draft_service.limits import MAX_BATCH, MAX_BATCH_NODES
from suffolk.serving.drafters.hybrid.accepted_length import reach
from suffolk.serving.drafters.hybrid.worth import Worth
from suffolk.serving.drafters.retrieval.inflight_call import InflightCall, LaterRetriever
from suffolk.serving.drafters.retrieval.limits import Limits
from suffolk.serving.drafters.retrieval.next_draft import likely_ends
from suffolk.serving.drafters.retrieval.retrieval_scorer import Ids, known_end, nodes_wanted
from suffolk.serving.engine.loop.drafter import DraftRequest

_BREADTH = 8
"""Times as many nodes are asked for ahead as a draft may have: only those behind one token are of use."""

_GAIN = 0.3
"""Tokens that waiting adds where nothing is there, until more is known: what it added to greedy answers of a 135M chat model."""


@dataclass(frozen=True, slots=True)
class _Wait:
    promised: float
    before: list[DraftTree]
    whole: list[DraftTree]


class Ahead:
    """Asks a retriever for a step's drafts before the step, as far as they can be foreseen. Not thread-safe.

    At which node of a verified tree a step will end can be foreseen; which token the target adds there cannot. So the trees behind
    the likeliest ends are asked for, a level deeper, and what lies below the added token is the next draft. What is lacking then
    is asked for at once if that should be worth the wait, and waited for no longer than it should be worth. What is late is
    dropped. While a late answer is on its way, and after a call that failed, nobody waits: calls ahead cost no time, and tell
    when the retriever is back.

    Attributes:
        foreseen: drafts that were there, at least in part, when they were needed; ``waited``: drafts that were waited for;
            ``late``: answers that were not there in time.
    """

    def __init__(
        self, retriever: LaterRetriever, limits: Limits, promise: Callable[[DraftRequest, DraftTree], float]
    ) -> None:
        """``promise``: how many tokens a tree of the retriever should bring a request."""
        self._retriever = retriever
        self._limits = limits
        self._promise = promise
        self._inquiry = InflightCall(retriever, limits)
        self._worth = Worth(_GAIN)
        self._waits: dict[int, _Wait] = {}
        self.foreseen = self.waited = self.late = 0

    def foresee(self, requests: Sequence[DraftRequest], trees: Sequence[DraftTree], lengths: Sequence[int]) -> None:
        """Ask for what may follow once ``trees`` are verified, behind endings of ``lengths`` tokens each; never waits.

        Raises SuffolkError if the call cannot be made.
        """
        if self._inquiry.busy:
            return
        contexts: list[Ids] = []  # the likeliest of all requests first: a call has its limits
        for paths in zip_longest(*map(likely_ends, trees)):
            for request, path in zip(requests, paths, strict=True):
                if path is not None:
                    text = np.concatenate([request.tokens[-self._limits.max_match :], path])
                    text = known_end(text, self._retriever.vocab_size)
                    contexts += [text[1 - length :] for length in lengths if length > 1]
        self._send(requests, contexts, _BREADTH, ahead=1)

    def draft(
        self, requests: Sequence[DraftRequest], endings: Sequence[Sequence[Ids]], again: bool = False
    ) -> list[list[DraftTree]]:
        """For each request the trees behind its ``endings``; empty ones where none were there in time.

        ``again``: they are asked for a second time in a step, by one who knows what that costs and brings: then waits are bounded
        by a token's time a request. Raises SuffolkError if a call has failed or cannot be made.
        """
        if again:
            return self._ask(requests, endings, sum(request.token_seconds for request in requests))
        self._inquiry.forget()
        self._inquiry.take()
        found = self._found(requests, endings)
        self.foreseen += sum(any(trees) for trees in found)
        lacking = self._lacking(requests, found)
        if lacking:
            some = [requests[place] for place in lacking]
            begin = time.perf_counter()
            try:
                whole = self._ask(some, [endings[place] for place in lacking], self._patience(some, lacking.values()))
            finally:
                self._worth.learn_cost((time.perf_counter() - begin) / len(lacking))
            self.waited += len(lacking)
            for place, trees in zip(lacking, whole, strict=True):
                before, found[place] = found[place], trees
                self._waits[requests[place].request_id] = _Wait(lacking[place], before, trees)
        self.late += self._inquiry.drop()
        return found

    def taken(self) -> list[float]:
        """See ``InflightCall.taken``."""
        return self._inquiry.taken()

    def observe(self, request_id: int, tokens: Ids) -> None:
        """The target's ``tokens`` followed: learn whether the wait was worth it."""
        waited = self._waits.pop(request_id, None)
        if waited is not None:
            before, whole = (
                min(len(tokens) - 1, max(reach(tree, tokens) for tree in trees))
                for trees in (waited.before, waited.whole)
            )
            self._worth.learn(waited.promised, max(0, whole - before))

    def release(self, request_id: int) -> None:
        self._waits.pop(request_id, None)

    def stats(self) -> dict[str, float]:
        return {"foreseen": self.foreseen, "waited": self.waited, "late": self.late}

    def _ask(
        self, requests: Sequence[DraftRequest], contexts: Sequence[Sequence[Ids]], seconds: float
    ) -> list[list[DraftTree]]:
        """Of all ``contexts``, also those that are known in part. Waits for ``seconds`` at most, 0 for the deadline."""
        if not self._inquiry.busy:
            self._send(requests, [context for each in contexts for context in each])
        self._inquiry.take(min(seconds or math.inf, self._retriever.deadline))
        self.late += self._inquiry.drop()
        return self._found(requests, contexts)

    def _send(
        self, requests: Sequence[DraftRequest], contexts: Sequence[Ids], breadth: int = 1, ahead: int = 0
    ) -> None:
        """Ask for the trees behind ``contexts``, as many as one call can have."""
        different = list({context.tobytes(): context for context in contexts}.values())[:MAX_BATCH]
        if different:
            most = min(MAX_NODES, MAX_BATCH_NODES // len(different))
            nodes = min(breadth * max(map(nodes_wanted, requests)), most)
            self._inquiry.ask(different, nodes, ahead)

    def _found(self, requests: Sequence[DraftRequest], contexts: Sequence[Sequence[Ids]]) -> list[list[DraftTree]]:
        return [
            [self._inquiry.found(context, nodes_wanted(request)) for context in each]
            for request, each in zip(requests, contexts, strict=True)
        ]

    def _lacking(self, requests: Sequence[DraftRequest], found: Sequence[Sequence[DraftTree]]) -> dict[int, float]:
        """The places of requests for which it should be worth waiting, and the tokens promised by what is there already."""
        places = [place for place, trees in enumerate(found) if not all(trees)]
        if not places or self._inquiry.dropped:
            return {}
        if not self._retriever.healthy:
            if not any(map(any, found)):
                raise Unavailable("the last call to the datastore failed; it is not waited for until one is answered")
            return {}
        promised = {
            place: max(self._promise(requests[place], tree.head(requests[place].max_nodes)) for tree in found[place])
            for place in places
        }
        return {
            place: promise
            for place, promise in promised.items()
            if self._worth.judge(promise, requests[place].token_seconds).pays
        }

    def _patience(self, requests: Sequence[DraftRequest], promised: Iterable[float]) -> float:
        """Seconds that waiting for ``requests`` should be worth; a token's time each where it is only tried again, the deadline
        where that is not known."""
        worth = sum(
            self._worth.gain(promise) * request.token_seconds
            for request, promise in zip(requests, promised, strict=True)
        )
        return worth if worth > self._worth.cost * len(requests) else sum(request.token_seconds for request in requests)
