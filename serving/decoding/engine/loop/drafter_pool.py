"""Calls the drafters of a step loop. If a drafter raises an error, only its draft is missing. The error is counted, not raised."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch

from suffolk.datastore import _native
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.engine.costs.draft_budget import UNLIMITED, DraftBudget
from suffolk.serving.decoding.engine.loop.draft_stats import DraftFailures, failures_by_reason, split_seconds
from suffolk.serving.decoding.engine.loop.drafter import (
    CacheDrafter,
    Drafter,
    DraftRequest,
    FeatureDrafter,
    GeneratedLogits,
    LogitsDrafter,
    PrefetchingDrafter,
    Proposal,
    SampledChain,
    model_sources,
    prefetches,
    tree_of,
)
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.model.kv_cache import KVCache
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.user_code_errors import USER_CODE_ERRORS, first_line

_Value = TypeVar("_Value", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Draft:
    """One request's draft and its cost.

    Attributes:
        proposal: valid, possibly empty.
        seconds: the request's share of the drafting time, without ``model_seconds`` and ``prefill_seconds``.
        model_seconds: the request's share of the time of drafting models' passes.
        prefill_seconds: the request's share of the time of drafting models' prefill, which later drafts use too.
    """

    proposal: Proposal
    seconds: float = 0.0
    model_seconds: float = 0.0
    prefill_seconds: float = 0.0


NO_DRAFT = Draft(DraftTree.empty())


class DrafterPool:
    """The drafters of a step loop, by name. Not thread-safe.

    Attributes:
        layers: layers whose hidden states the drafters read, rising.
        model_sources: for each drafter, the source bits of the models that it may leave out; 0 if there are none.
    """

    def __init__(self, drafters: Mapping[str, Drafter], target: Target, cache: KVCache) -> None:
        """Gives ``cache`` to the drafters that read it. Raises InvalidArgument: a drafter reads a layer that does not exist."""
        self._drafters = dict(drafters)
        for each in drafters.values():
            if isinstance(each, CacheDrafter):
                each.attach(cache)
        self._vocab_size = target.vocab_size
        wanted = {
            name: each.layers for name, each in drafters.items() if isinstance(each, FeatureDrafter) and each.layers
        }
        for name, layers in wanted.items():
            if list(layers) != sorted(set(layers)) or layers[0] < 0 or layers[-1] > target.layers:
                raise InvalidArgument(
                    f"drafter {name} wants hidden states of layers {layers}; model {target.name} has 0..{target.layers}, "
                    "and they must rise",
                )
        self.layers = sorted({layer for layers in wanted.values() for layer in layers})
        self._columns = {name: [self.layers.index(layer) for layer in layers] for name, layers in wanted.items()}
        self._learners = {
            name: each for name, each in drafters.items() if isinstance(each, LogitsDrafter) and each.reads_logits
        }
        self._prefetching = {name: each for name, each in drafters.items() if isinstance(each, PrefetchingDrafter)}
        self.model_sources = {name: model_sources(each) for name, each in drafters.items()}
        self._failures = {name: DraftFailures(f"drafter {name}") for name in drafters}

    def draft(self, requests: Sequence[Request], budgets: Sequence[DraftBudget]) -> list[Draft]:
        """A draft for each of ``requests``, within its budget. Calls each drafter once.

        A sampled chain keeps its distributions only with verification ``rejection``; otherwise its tree is returned.
        """
        drafts = [NO_DRAFT] * len(requests)
        for name, members in _by_drafter(requests).items():
            before, begin = self._counters(name), time.perf_counter()
            queries = [_draft_request(requests[at], budgets[at]) for at in members]
            found, after = self._propose(name, [requests[at] for at in members], queries, before)
            seconds = time.perf_counter() - begin
            retrieval, models, prefill = seconds, 0.0, 0.0
            with suppress(*USER_CODE_ERRORS):  # a counter may be no number
                retrieval, models, prefill = split_seconds(before, after, seconds)
            using = max(1, sum(each.budget.model_seconds > 0 for each in queries))
            for at, proposal, query in zip(members, found, queries, strict=True):
                share = 1 / using if query.budget.model_seconds > 0 else 0.0
                drafts[at] = Draft(proposal, retrieval / len(members), models * share, prefill * share)
        return drafts

    def permitted(self, request: Request, proposal: Proposal) -> Proposal:
        """``proposal`` without nodes that the request's grammar forbids; empty if the grammar fails on it."""
        if request.matcher is None:
            return proposal
        with self._guard(request.drafter, [request]):
            return permitted_draft(request, proposal)
        return DraftTree.empty()

    def prefetch(self, requests: Sequence[Request], trees: Sequence[DraftTree]) -> None:
        """Let the drafters that prefetch prepare the next drafts while the target verifies ``trees``."""
        for name, members in _by_drafter(requests).items():
            drafter = self._prefetching.get(name)
            if drafter is None or not prefetches(drafter):
                continue
            with self._guard(name, [requests[at] for at in members]):
                queries = [_draft_request(requests[at], UNLIMITED) for at in members]
                context = requests[members[0]].context  # a call for several requests belongs to the trace of the first
                context.run(drafter.prefetch, queries, [_read_only_tree(trees[at]) for at in members])

    def follow(self, request: Request, features: torch.Tensor, rows: npt.NDArray[np.int64]) -> None:
        """Pass the hidden states of the request's next tokens to its drafter: ``rows`` of ``features``, float[n, layers, width].

        If the hidden states do not fit into memory, only the drafter fails.
        """
        columns = self._columns.get(request.drafter)
        if columns is None:
            return
        with self._guard(request.drafter, [request]):
            drafter = self._drafters[request.drafter]
            assert isinstance(drafter, FeatureDrafter)
            found = features[torch.from_numpy(rows).to(features.device)]
            drafter.follow(request.number, found if len(columns) == len(self.layers) else found[:, columns])

    def reads_prompt(self, request: Request) -> bool:
        """Whether the request's drafter needs the hidden states of the whole prompt."""
        return request.drafter in self._columns

    def learns(self, request: Request) -> bool:
        """Whether the request's drafter learns from the logits of generated tokens, and may keep them."""
        options = request.options
        return options.remember and not options.tenant and request.drafter in self._learners

    def learn_logits(self, requests: Sequence[Request], logits: Sequence[torch.Tensor]) -> None:
        """Pass to the drafters of ``requests`` the ``logits``, float[k, vocab] each, of the last tokens."""
        for name, members in _by_drafter(requests).items():
            with self._guard(name, [requests[at] for at in members]):
                self._learners[name].learn_logits(
                    [GeneratedLogits(requests[at].number, _text(requests[at]), logits[at]) for at in members]
                )

    def observe(self, requests: Sequence[Request], tokens: Sequence[npt.NDArray[np.int32]]) -> None:
        """Pass to the drafters of ``requests`` the ``tokens`` that were generated after the last draft of each."""
        for name, members in _by_drafter(requests).items():
            with self._guard(name, [requests[at] for at in members]):
                self._drafters[name].observe({requests[at].number: _read_only(tokens[at]) for at in members})

    def release(self, request: Request) -> None:
        """Let the request's drafter forget the request."""
        with self._guard(request.drafter, [request]):
            self._drafters[request.drafter].release(request.number)

    def _propose(
        self, name: str, requests: Sequence[Request], queries: Sequence[DraftRequest], before: Mapping[str, float]
    ) -> tuple[list[Proposal], Mapping[str, float]]:
        """A checked proposal for each of ``requests``, and the drafter's counters. ``before``: its counters before the call."""
        drafter = self._drafters[name]
        with self._guard(name, requests):
            found = requests[0].context.run(drafter.propose, queries)
            proposals = found if isinstance(found, _native.Trees) else list(found)
            after = drafter.stats()
            failures = failures_by_reason(after) - failures_by_reason(before)
            if len(proposals) != len(requests):
                raise InvalidArgument(f"{len(proposals)} trees came for {len(requests)} requests")
            checked = self._check(name, requests, proposals)
            for request, each in zip(requests, checked, strict=True):
                if not len(tree_of(each)):  # stats do not name requests, so every empty draft may have failed
                    request.stats.draft_failures.update(failures.keys())
            return checked, after
        return [DraftTree.empty()] * len(requests), self._counters(name)

    def _counters(self, name: str) -> Mapping[str, float]:
        try:
            return self._drafters[name].stats()
        except USER_CODE_ERRORS:
            return {}  # ``_propose`` reads stats too, and counts the error

    def _check(self, name: str, requests: Sequence[Request], proposals: Sequence[Proposal]) -> list[Proposal]:
        """Checked copies of ``proposals``. An invalid proposal is a failure of its request, and becomes an empty tree."""
        try:
            given = proposals if isinstance(proposals, _native.Trees) else [tree_of(each) for each in proposals]
            trees = _native.checked_trees(given, self._vocab_size, [each.max_nodes for each in requests])
            if given is proposals:
                return [*trees]
            return [
                SampledChain(tree, proposal.distributions[: len(tree)].clone())
                if isinstance(proposal, SampledChain) and request.settings.verification == "rejection"
                else tree
                for request, proposal, tree in zip(requests, proposals, trees, strict=True)
            ]
        except USER_CODE_ERRORS as error:
            if len(requests) > 1:  # find the requests with invalid proposals
                alone = zip(requests, proposals, strict=True)
                return [self._check(name, [request], [proposal])[0] for request, proposal in alone]
            self._fail(name, requests, error)
            return [DraftTree.empty()]

    @contextmanager
    def _guard(self, name: str, requests: Sequence[Request]) -> Iterator[None]:
        """Count an error of the ``with`` block as a failure of the drafter for each of ``requests``, and go on."""
        try:
            yield
        except USER_CODE_ERRORS as error:
            self._fail(name, requests, error)

    def _fail(self, name: str, requests: Sequence[Request], error: BaseException) -> None:
        reason = type(error).__name__
        self._failures[name].add(reason, first_line(error), len(requests))
        for request in requests:
            request.stats.draft_failures[reason] += 1


def _by_drafter(requests: Sequence[Request]) -> dict[str, list[int]]:
    """Drafter -> the indices of its requests."""
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for at, request in enumerate(requests):
        groups[request.drafter].append(at)
    return groups


def _text(request: Request) -> npt.NDArray[np.int32]:
    return _read_only(request.tokens[: request.length])


def _read_only(values: npt.NDArray[_Value]) -> npt.NDArray[_Value]:
    """A view that drafters cannot write to."""
    view: npt.NDArray[_Value] = values[:]
    view.flags.writeable = False
    return view


def _read_only_tree(tree: DraftTree) -> DraftTree:
    return DraftTree(
        _read_only(tree.tokens), _read_only(tree.parents), _read_only(tree.scores), _read_only(tree.sources)
    )


def _draft_request(request: Request, budget: DraftBudget) -> DraftRequest:
    return DraftRequest(
        request.number,
        _text(request),
        request.max_nodes,
        request.stats.prompt_tokens,
        request.settings,
        request.slot,
        budget,
        request.options,
        request.prediction if request.prediction is None else _read_only(request.prediction),
    )


def permitted_draft(request: Request, proposal: Proposal) -> Proposal:
    """``proposal`` without nodes that cannot be accepted because of the grammar of ``request``.

    A sampled chain keeps its first forbidden token, which the target rejects. A cut before this token would change the
    distribution.

    Raises:
        InvalidArgument: the grammar fails on the drafted tokens, or on the committed text.
    """
    tree = tree_of(proposal)
    if request.matcher is None or not len(tree):
        return proposal
    allowed = request.matcher.allowed(request.contexts(tree))[1:]
    if isinstance(proposal, SampledChain) and not allowed.all():
        size = int(np.argmin(allowed)) + 1
        return SampledChain(tree.head(size), proposal.distributions[:size])
    return proposal if isinstance(proposal, SampledChain) else tree.where(allowed)
