"""A drafting network beside retrieval: asked where it should add enough to what was retrieved."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.drafters.calibration.confidence import Confidence
from suffolk.serving.drafters.calibration.rescale import learn_tree, normalize_siblings, rescale
from suffolk.serving.drafters.hybrid.accepted_length import reach
from suffolk.serving.drafters.hybrid.heard import Heard
from suffolk.serving.drafters.hybrid.merge import NAMED
from suffolk.serving.drafters.hybrid.precedents import Precedents
from suffolk.serving.drafters.hybrid.promises import Promises
from suffolk.serving.drafters.hybrid.worth import Verdict, Worth
from suffolk.serving.engine.loop.draft_failures import DraftFailures
from suffolk.serving.engine.loop.drafter import Drafter, DraftRequest, FeatureDrafter, Proposal, tree_of
from suffolk.serving.engine.loop.user_code_errors import USER_CODE_ERRORS, first_line

if TYPE_CHECKING:
    import torch


ANY_TOKEN = 2**31 - 1
"""A size of the vocabulary that refuses no token."""
_ADDED = 1.0
"""Tokens that a network adds where nothing is retrieved, until more is known."""
_LISTEN = 6
"""Steps of a first request before its networks are asked: how far retrieval gets by itself is worth knowing before a prompt is
read, and an answer that copies it begins with words of its own. In the first steps of later ones others tell. Not where a draft may
take any time."""
_TOLD = 3
"""Steps of a request that tell something of others."""


@dataclass(frozen=True, slots=True)
class _Draft:
    request: DraftRequest
    promised: float
    retrieved: DraftTree
    own: DraftTree


class GatedDrafter:
    """One network of a ``HybridDrafter``. Its faults cost its own drafts alone: counted by reason, logged once each. Not
    thread-safe.

    Attributes:
        drafter: the network's own drafter; ``name``: its name.
        missed: drafts that it owes because of a fault.
        verdicts: of the last step, by the number of the request: whether it was run.
        seconds: that its drafts and faults have taken so far, without what reading texts took.
    """

    def __init__(self, drafter: Drafter, trust: Confidence, vocab_size: int = ANY_TOKEN) -> None:
        """Takes over ``drafter``: ``close`` closes it. ``trust``: what its scores have been worth beside other sources.
        ``vocab_size``: the target's; a tree with other ids is a missed draft."""
        self.drafter = drafter
        self.name = drafter.name
        self.missed = DraftFailures(f"network {self.name}")
        self._trust = trust
        self._vocab_size = vocab_size
        self.seconds = 0.0
        self._read_seconds = 0.0
        self._worth = Worth(getattr(drafter, "added", _ADDED))  # it need not know
        self._promises = Promises()
        self._heard: dict[int, Heard] = {}
        self._precedents = Precedents()
        self.verdicts: dict[int, Verdict] = {}
        self._drafts: dict[int, _Draft] = {}

    def add(self, requests: Sequence[DraftRequest], retrieved: Sequence[DraftTree]) -> list[list[DraftTree]]:
        """The network's trees for ``requests``, for which ``retrieved`` is there already; none where that is enough: of what is
        there counts what would be verified."""
        retrieved = [tree.likely(each.least_score) for tree, each in zip(retrieved, requests, strict=True)]
        asked = self._judge(requests, retrieved)
        trees: list[list[DraftTree]] = [[] for _ in requests]
        for place, own in self._draft(requests, asked):
            request = requests[place]
            trees[place].append(rescale(self._trust, request, own))
            promised = self._heard[request.request_id].promise
            self._drafts[request.request_id] = _Draft(request, promised, retrieved[place], own)
        return trees

    def observe(self, request_id: int, tokens: npt.NDArray[np.int32]) -> None:
        """Learn what the network added, and let it learn."""
        heard, draft, most = self._heard.get(request_id), self._drafts.pop(request_id, None), len(tokens) - 1
        if heard is not None:
            heard.learn(tokens)
            self._promises.learn(heard.raw, heard.brought[-1])
        if draft is not None:
            with_it = max(reach(draft.retrieved, tokens), reach(draft.own.head(draft.request.max_nodes), tokens))
            gained = min(most, with_it) - min(most, reach(draft.retrieved, tokens))
            self._worth.learn(draft.promised, gained)
            learn_tree(self._trust, draft.request, draft.own, tokens)
            with self._own_fault():
                self.drafter.observe(request_id, tokens)

    def follow(self, request_id: int, features: torch.Tensor) -> None:
        """See ``FeatureDrafter``, which the drafter must be."""
        assert isinstance(self.drafter, FeatureDrafter)
        with self._own_fault():
            self.drafter.follow(request_id, features)

    def release(self, request_id: int) -> None:
        self._drafts.pop(request_id, None)
        heard = self._heard.pop(request_id, None)
        if heard is not None and heard.steps >= _TOLD:
            self._precedents.add(heard.prompt, heard.brought)
        with self._own_fault():
            self.drafter.release(request_id)

    def stats(self) -> dict[str, float]:
        """The drafter's counters and those of the drafts missed here, and for how many drafts it was run and left out."""
        counters: dict[str, float] = {}
        with self._own_fault():
            counters.update(self.drafter.stats())
        for name, count in self.missed.stats().items():
            counters[name] = counters.get(name, 0) + count
        return counters | {"asked": self._worth.asked, "skipped": self._worth.skipped}

    def _judge(self, requests: Sequence[DraftRequest], retrieved: Sequence[DraftTree]) -> list[int]:
        """The places of those for which the network should be run."""
        self.verdicts = {}
        for request, tree in zip(requests, retrieved, strict=True):
            heard = self._hear(request)
            heard.retrieved, heard.raw = tree, float(tree.scores.sum())
            heard.promised = self._promises.expected(heard.raw)
            if not request.most_seconds:
                self._worth.skipped += 1
            elif (
                heard.steps >= _LISTEN
                or heard.outlook.others
                or not request.token_seconds
                or math.isinf(request.most_seconds)
            ):
                self.verdicts[request.request_id] = self._worth.judge(
                    heard.promise, request.token_seconds, request.most_seconds
                )
        return [
            place
            for place, request in enumerate(requests)
            if request.request_id in self.verdicts and self.verdicts[request.request_id].pays
        ]

    def _draft(self, requests: Sequence[DraftRequest], asked: Sequence[int]) -> list[tuple[int, DraftTree]]:
        """The network's own trees, each with its place; it may decline, which says nothing of its drafts, as a fault does."""
        if not asked:
            return []
        asking = [
            replace(
                requests[place],
                already=self._heard[requests[place].request_id].already,
                named_nodes=NAMED,
            )
            for place in asked
        ]
        reading, begin = self._reading_seconds(), time.perf_counter()
        found = self._propose(asking)
        seconds = max(0.0, time.perf_counter() - begin - (self._reading_seconds() - reading))
        drafts = [(place, own) for place, own in zip(asked, found, strict=True) if own]
        faults = [request.request_id for request, own in zip(asking, found, strict=True) if own is None]
        if drafts or faults:
            self.seconds += seconds
            share = seconds / (len(drafts) + len(faults))
            rows = [len(own.likely(requests[place].least_score)) * requests[place].row_seconds for place, own in drafts]
            share += fmean(rows) if rows else 0.0
            self._worth.learn_cost(
                share if drafts else max(share, self._worth.cost)
            )  # one that fails at once is not fast
        for number in faults:
            self._worth.learn(self._heard[number].promise, 0)
        for request, own in zip(asking, found, strict=True):
            if not own:
                self.verdicts[request.request_id] = replace(self.verdicts[request.request_id], declined=True)
        return drafts

    def _propose(self, requests: Sequence[DraftRequest]) -> list[DraftTree | None]:
        """The network's tree for each of ``requests``, None where a fault took it."""
        try:
            proposals = self.drafter.propose(requests)
            if len(proposals) != len(requests):
                raise InvalidArgument(f"{len(proposals)} trees came for {len(requests)} requests")
        except USER_CODE_ERRORS as error:
            self._miss(error, len(requests))
            return [None] * len(requests)
        return [self._check(request, each) for request, each in zip(requests, proposals, strict=True)]

    def _check(self, request: DraftRequest, proposal: Proposal) -> DraftTree | None:
        try:
            return normalize_siblings(tree_of(proposal).validate(self._vocab_size).head(request.most_named))
        except USER_CODE_ERRORS as error:
            self._miss(error, 1)
            return None

    def _miss(self, error: BaseException, drafts: int) -> None:
        self.missed.add(type(error).__name__, first_line(error), drafts)

    def _hear(self, request: DraftRequest) -> Heard:
        """What is known of the request; a new one is told by those before."""
        heard = self._heard.get(request.request_id)
        if heard is None:
            heard = self._heard[request.request_id] = Heard(request.tokens[: request.prompt_tokens])
        if not heard.outlook.others:  # until a request has ended
            heard.outlook = self._precedents.of(heard.prompt)
        return heard

    def _reading_seconds(self) -> float:
        """Which bring later drafts too, and are no cost of this one."""
        with self._own_fault():
            self._read_seconds = float(self.drafter.stats().get("reading_seconds", 0.0))
        return self._read_seconds

    @contextlib.contextmanager
    def _own_fault(self) -> Iterator[None]:
        try:
            yield
        except USER_CODE_ERRORS as error:
            self._miss(error, 1)

    def close(self) -> None:
        self._drafts.clear()
        self._heard.clear()
        self._precedents.clear()
        with self._own_fault():
            self.drafter.close()
