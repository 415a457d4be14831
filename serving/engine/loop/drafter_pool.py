"""Asks drafters for the trees of a step. Whatever they do wrong costs a draft and not the text: it is counted, logged once, and
never raised."""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.engine.loop.draft_budget import UNLIMITED, DraftBudget
from suffolk.serving.engine.loop.draft_failures import failures_by_reason
from suffolk.serving.engine.loop.drafter import (
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
    tree_of,
)
from suffolk.serving.engine.loop.request import Request
from suffolk.serving.engine.model.kv_cache import KVCache
from suffolk.serving.engine.model.target import Target
from suffolk.serving.engine.user_code_errors import USER_CODE_ERRORS, first_line

log = logging.getLogger(__name__)
_Value = TypeVar("_Value", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Draft:
    """What a request's drafter proposes.

    Attributes:
        proposal: a valid one, empty if there is none.
        seconds: the request's share of the time of drafting; model_seconds: of passes of such models besides; prefill_seconds: of
            prefill besides, from which later drafts gain too.
    """

    proposal: Proposal
    seconds: float = 0.0
    model_seconds: float = 0.0
    prefill_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class DraftSeconds:
    """Seconds that a drafter has taken, by its own ``stats``: for prefill, and for models that it may leave out."""

    prefill: float = 0.0
    models: float = 0.0

    @staticmethod
    def so_far(drafter: Drafter) -> DraftSeconds:
        """Raises what the drafter's ``stats`` raises."""
        stats = drafter.stats()
        return DraftSeconds(float(stats.get("prefill_seconds", 0.0)), float(stats.get("model_seconds", 0.0)))

    def split(self, before: DraftSeconds, seconds: float) -> tuple[float, float, float]:
        """``seconds`` since ``before`` in three parts: text, models, prefill."""
        prefill = min(seconds, max(0.0, self.prefill - before.prefill))
        models = min(seconds - prefill, max(0.0, self.models - before.models))
        return seconds - prefill - models, models, prefill


NO_DRAFT = Draft(DraftTree.empty())


class DrafterPool:
    """The drafters of a step loop, by name. Not thread-safe.

    Attributes:
        layers: whose hidden states its drafters want, rising; empty if none does.
        model_sources: by name of drafter, ``Source`` bits of models that it may leave out; 0 for none.
        faults: faults that were caught here, by kind; those that drafters caught themselves are in their ``stats``.
    """

    def __init__(self, drafters: Mapping[str, Drafter], target: Target, cache: KVCache) -> None:
        """Attaches those that read ``cache``. Raises InvalidArgument if one wants hidden states of layers that are not there."""
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
                    "and they must rise"
                )
        self.layers = sorted({layer for layers in wanted.values() for layer in layers})
        self._columns = {name: [self.layers.index(layer) for layer in layers] for name, layers in wanted.items()}
        self._learners = {
            name: each for name, each in drafters.items() if isinstance(each, LogitsDrafter) and each.reads_logits
        }
        self.model_sources = {name: model_sources(each) for name, each in drafters.items()}
        self.faults: Counter[str] = Counter()

    def draft(self, requests: Sequence[Request], budgets: Sequence[DraftBudget]) -> list[Draft]:
        """A draft for each of ``requests`` within its budget, one call per drafter.

        A sampled chain comes with its law only where the request verifies by it; elsewhere it is a tree like any other.
        """
        drafts = [NO_DRAFT] * len(requests)
        for name, members in _by_drafter(requests).items():
            before, begin = self._seconds(name), time.perf_counter()
            asked = [_asked(requests[at], budgets[at]) for at in members]
            found = self._propose(name, [requests[at] for at in members], asked)
            seconds = time.perf_counter() - begin
            own, models, prefill = self._seconds(name).split(before, seconds)
            using = max(1, sum(each.budget.model_seconds > 0 for each in asked))
            for at, proposal, each in zip(members, found, asked, strict=True):
                share = 1 / using if each.budget.model_seconds > 0 else 0.0
                drafts[at] = Draft(proposal, own / len(members), models * share, prefill * share)
        return drafts

    def prefetch(self, requests: Sequence[Request], trees: Sequence[DraftTree]) -> None:
        """Tell drafters that want it which trees are verified for ``requests`` now."""
        for name, members in _by_drafter(requests).items():
            drafter = self._drafters[name]
            if not isinstance(drafter, PrefetchingDrafter):
                continue
            try:
                asked = [_asked(requests[at], UNLIMITED) for at in members]
                drafter.prefetch(asked, [_lent_tree(trees[at]) for at in members])
            except USER_CODE_ERRORS as error:
                self._fail(name, [requests[at] for at in members], error)

    def follow(self, request: Request, features: torch.Tensor, rows: npt.NDArray[np.int64]) -> None:
        """Give the request's drafter its layers of ``rows`` of ``features``, float[n, layers, width], of its next tokens. There may
        be no memory for them, which only the drafter misses."""
        columns = self._columns.get(request.drafter)
        if columns is None:
            return
        try:
            drafter = self._drafters[request.drafter]
            assert isinstance(drafter, FeatureDrafter)
            found = features[torch.from_numpy(rows).to(features.device)]
            drafter.follow(request.number, found if len(columns) == len(self.layers) else found[:, columns])
        except USER_CODE_ERRORS as error:
            self._fail(request.drafter, [request], error)

    def learns(self, request: Request) -> bool:
        """Whether the request's drafter reads the logits of generated tokens."""
        return request.drafter in self._learners

    def learn_logits(self, requests: Sequence[Request], logits: Sequence[torch.Tensor]) -> None:
        """Tell the drafters of ``requests``, who want to know, what the last tokens were drawn from, float[k, vocab] each."""
        for name, members in _by_drafter(requests).items():
            try:
                self._learners[name].learn_logits(
                    [GeneratedLogits(requests[at].number, _text(requests[at]), logits[at]) for at in members]
                )
            except USER_CODE_ERRORS as error:
                self._fail(name, [requests[at] for at in members], error)

    def observe(self, request: Request, tokens: npt.NDArray[np.int32]) -> None:
        """Tell the request's drafter which tokens followed its last draft."""
        try:
            self._drafters[request.drafter].observe(request.number, _lent(tokens))
        except USER_CODE_ERRORS as error:
            self._fail(request.drafter, [request], error)

    def release(self, request: Request) -> None:
        """Tell the request's drafter that it has ended."""
        try:
            self._drafters[request.drafter].release(request.number)
        except USER_CODE_ERRORS as error:
            self._fail(request.drafter, [request], error)

    def _propose(self, name: str, requests: Sequence[Request], asked: Sequence[DraftRequest]) -> list[Proposal]:
        drafter = self._drafters[name]
        try:
            before = failures_by_reason(drafter.stats())
            proposals = list(drafter.propose(asked))
            failures = failures_by_reason(drafter.stats()) - before
            if len(proposals) != len(requests):
                raise InvalidArgument(f"{len(proposals)} trees came for {len(requests)} requests")
        except USER_CODE_ERRORS as error:
            self._fail(name, requests, error)
            return [DraftTree.empty()] * len(requests)
        checked = [self._check(name, request, each) for request, each in zip(requests, proposals, strict=True)]
        for request, each in zip(requests, checked, strict=True):
            if not len(tree_of(each)):  # the drafter does not say whose draft failed
                request.stats.draft_failures.update(failures.keys())
        return checked

    def _seconds(self, name: str) -> DraftSeconds:
        try:
            return DraftSeconds.so_far(self._drafters[name])
        except USER_CODE_ERRORS:
            return DraftSeconds()  # counted where it is asked for drafts

    def _check(self, name: str, request: Request, proposal: Proposal) -> Proposal:
        try:
            tree = checked_tree(tree_of(proposal), self._vocab_size, request.max_nodes)
            if request.settings.verification == "rejection" and isinstance(proposal, SampledChain):
                return SampledChain(tree, proposal.distributions[: len(tree)].clone())
            return tree
        except USER_CODE_ERRORS as error:
            self._fail(name, [request], error)
            return DraftTree.empty()

    def _fail(self, name: str, requests: Sequence[Request], error: BaseException) -> None:
        reason = type(error).__name__
        if not self.faults[reason]:
            log.warning("drafter %s: %s; going on without its draft", name, first_line(error))
        self.faults[reason] += 1
        for request in requests:
            request.stats.draft_failures[reason] += 1


def _by_drafter(requests: Sequence[Request]) -> dict[str, list[int]]:
    """The places of the requests of each drafter."""
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for at, request in enumerate(requests):
        groups[request.drafter].append(at)
    return groups


def _text(request: Request) -> npt.NDArray[np.int32]:
    return _lent(request.tokens[: request.length])


def _lent(values: npt.NDArray[_Value]) -> npt.NDArray[_Value]:
    """A view that drafters cannot write through: what they are shown is still needed as it is."""
    view: npt.NDArray[_Value] = values[:]
    view.flags.writeable = False
    return view


def _lent_tree(tree: DraftTree) -> DraftTree:
    return DraftTree(_lent(tree.tokens), _lent(tree.parents), _lent(tree.scores), _lent(tree.sources))


def _asked(request: Request, budget: DraftBudget) -> DraftRequest:
    return DraftRequest(
        request.number,
        _text(request),
        request.max_nodes,
        request.stats.prompt_tokens,
        request.settings,
        request.slot,
        budget,
    )


def checked_tree(tree: DraftTree, vocab_size: int, max_nodes: int) -> DraftTree:
    """A copy of ``tree``, cut to ``max_nodes`` and without its counts, if it is one over this vocabulary; else raises
    InvalidArgument. A copy, because its maker may use the arrays again while the tree is verified."""
    tree.validate(vocab_size)
    kept = slice(max_nodes)
    return DraftTree(
        tree.tokens[kept].copy(), tree.parents[kept].copy(), tree.scores[kept].copy(), tree.sources[kept].copy()
    )
