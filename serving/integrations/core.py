"""The host-neutral core of all adapters: takes the texts of running requests, and returns flattened drafts."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from suffolk.datastore.context_query import DEFAULT_MAX_NODES
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import SuffolkError
from suffolk.datastore.retriever import AsyncRetriever
from suffolk.serving.clients.breaker import CircuitBreaker
from suffolk.serving.clients.text_appender import TextAppender
from suffolk.serving.decoding.drafters.calibration.calibration import Calibration
from suffolk.serving.decoding.drafters.hybrid.drafter import HybridDrafter
from suffolk.serving.decoding.drafters.retrieval.datastore import SHORT_MATCHES, DatastoreDrafter
from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.drafters.retrieval.retrieval_source import RetrievalSource
from suffolk.serving.decoding.engine.loop.draft_options import DEFAULT_OPTIONS, DraftOptions
from suffolk.serving.decoding.engine.loop.draft_stats import DraftFailures
from suffolk.serving.decoding.engine.loop.drafter import GREEDY, DraftRequest
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.decoding.engine.user_code_errors import USER_CODE_ERRORS, first_line
from suffolk.serving.integrations.chain_planner import ChainPlanner, best_chain, masked_tree
from suffolk.serving.integrations.host_drafts import HostDrafts
from suffolk.serving.integrations.options import IntegrationOptions, open_stores
from suffolk.serving.integrations.running_requests import Context, RunningRequest, RunningRequests
from suffolk.serving.open_store import open_appendable

Result = TypeVar("Result")
_NODES = 2
"""Nodes to look up per token of the longest chain. More nodes take longer and do not improve chains."""
CHAIN_MATCHES = (3,)
"""``short_matches`` of a host that verifies chains. More lengths add cost, but no accepted tokens, because a chain is one
path."""
SAMPLED = SamplingSettings(temperature=1.0, verification="rejection")
"""Settings for requests with sampling, because the host's noise is unknown."""


@dataclass(frozen=True, slots=True)
class FinishedText:
    """The text of a request that has ended.

    Attributes:
        key: the host's id; None if there is none.
        tokens: int32[n], prompt and generated tokens. If the host passes only the end of each text, ``tokens`` has only the
            end.
        prompt_tokens: length of the prompt.
    """

    key: Hashable | None
    tokens: npt.NDArray[np.int32]
    prompt_tokens: int


class DraftCore:
    """Drafts for all running requests of a host's step, with one call to each datastore or server. Not thread-safe.

    After construction no method raises. A failure discards drafts and is counted by reason; each reason is logged once.
    After three failures in a row, drafting is retried once a second (``CircuitBreaker``).

    In each step the host calls ``draft_chains`` or ``draft_trees`` (always the same one) with the texts of all decoding
    requests. The new tokens show which drafted tokens were accepted. ``finish`` ends requests with ids. Requests
    without ids end when they are absent. ``drafter`` makes the drafts.
    """

    def __init__(
        self,
        options: IntegrationOptions,
        vocab_size: int,
        model: str,
        tokenizer: str | Path | None = None,
        on_finish: Callable[[FinishedText], None] | None = None,
        clock: Callable[[], float] = time.perf_counter,
        short_matches: Sequence[int] = SHORT_MATCHES,
        host_drafts: bool = False,
    ) -> None:
        """Opens the datastores.

        Args:
            vocab_size: the model's vocabulary size. ``model``: name of the model in messages.
            tokenizer: the model's folder, its tokenizer.json or hub name; None to skip the comparison of tokenizers.
            on_finish: called with each ended text, for example to append it to a datastore.
            clock: returns seconds; used to time passes.
            short_matches: lengths of shorter suffixes of the text to look up besides the longest match.
            host_drafts: whether the host has a drafter of its own, whose chains ``draft_chains`` gets.

        Raises:
            Unsupported: a datastore was built with another tokenizer, or has more ids than the model.
            InvalidArgument, NotFound, Unavailable and others: as ``suffolk.open``.
        """
        self._vocab_size, self._on_finish = vocab_size, on_finish
        self._memory = None if options.remember is None else open_appendable(options.remember, tokenizer)
        self._appender = None if self._memory is None else TextAppender(self._memory)
        try:
            self._stores = open_stores(options, self._memory, vocab_size, model, tokenizer)
        except SuffolkError:
            self._close_memory()
            raise
        remote = {name for store in self._stores if isinstance(store, AsyncRetriever) for name in store.names}
        self._has_remote = bool(remote)
        local = {name for store in self._stores for name in store.names} - remote
        self._without_remote = DraftOptions(datastores=tuple(sorted(local)))
        calibration = Calibration()
        sources: list[RetrievalSource] = [
            DatastoreDrafter(store, vocab_size, options.limits, calibration, False, short_matches)
            for store in self._stores
        ]
        if options.prompt_lookup:
            sources.insert(0, PromptLookupDrafter(vocab_size, options.limits, calibration))
        self._host = HostDrafts() if host_drafts else None
        if self._host is not None:
            sources.append(self._host)
        self.drafter = HybridDrafter(sources, calibration=calibration, vocab_size=vocab_size)
        self._planner = ChainPlanner(options.row_cost, clock, host_drafts)
        self._clock = clock
        self._running = RunningRequests()
        self._failures = DraftFailures("drafting for the host")
        self._breaker = CircuitBreaker(clock=clock)
        self._counts = {"steps": 0, "drafts": 0, "draft_tokens": 0, "draft_seconds": 0.0}

    def draft_chains(
        self,
        contexts: Sequence[Context],
        most: int,
        reads_prompts: bool = False,
        host_chains: Sequence[Sequence[int]] = (),
    ) -> list[list[int]]:
        """Return one chain of up to ``most`` tokens per context, in order; empty if drafting is not expected to pay off.

        If the host has a chain, the result is the best path of a tree of this chain and all retrieved paths. It is the host's
        chain if nothing is retrieved, and after a failure.

        Args:
            contexts: the decoding requests of the next pass.
            reads_prompts: whether the last pass also read prompts of requests that are not in ``contexts``.
            host_chains: the host's own draft for each context. Needs ``host_drafts``.
        """
        begin = self._clock()
        own = [list(each) for each in host_chains] or [[] for _ in contexts]
        found = self._guarded(lambda: self._chains(contexts, most, reads_prompts, own)) or own
        self._planner.leave()
        self._count([len(each) for each in found], begin)
        return found

    def draft_trees(
        self, contexts: Sequence[Context], width: int
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
        """Return one tree of ``width`` nodes per context, as ``masked_tree``: int32[b, width] and bool[b, width, width]."""
        begin = self._clock()
        trees = self._guarded(lambda: self._trees(contexts, width)) or [DraftTree.empty()] * len(contexts)
        flat = [masked_tree(tree, int(each.tokens[-1]), width) for tree, each in zip(trees, contexts, strict=True)]
        self._count([min(len(each), width - 1) for each in trees], begin)
        tokens = np.array([each for each, _ in flat], np.int32).reshape(-1, width)
        return tokens, np.array([each for _, each in flat], np.bool_).reshape(-1, width, width)

    def finish(self, key: Hashable) -> None:
        """End the request with the host's id ``key``, if it is known."""
        request = self._running.pop(key)
        if request is not None:
            self._guarded(lambda: self._end(request))

    def stats(self) -> dict[str, float]:
        """Steps, drafts, drafted tokens and seconds; failures; and the counters of all drafters."""
        found = self.drafter.stats()
        for name, count in self._failures.stats().items():
            found[name] = found.get(name, 0) + count
        remembered = {} if self._appender is None else self._appender.stats()
        return {**found, **self._counts, **{f"remember_{name}": count for name, count in remembered.items()}}

    def close(self) -> None:
        """Append the texts that wait, and release datastores and memory."""
        self._running.clear()
        self.drafter.close()
        self._close_memory()
        for store in self._stores:
            store.close()

    def _close_memory(self) -> None:
        if self._appender is not None:
            self._appender.close()
        if self._memory is not None:
            self._memory.close()

    def _chains(
        self, contexts: Sequence[Context], most: int, reads_prompts: bool, own: Sequence[list[int]]
    ) -> list[list[int]]:
        requests = self._observe(contexts)
        host = {each.number: chain for each, chain in zip(requests, own, strict=True)}
        if self._host is not None:
            self._host.give(host)
        generated = {each.number: each.new for each in requests if len(each.new)}
        length = float(np.mean([each.length for each in requests])) if requests else 0.0
        self._planner.learn(generated, length, not reads_prompts and len(generated) == len(requests))
        begin = self._clock()
        drafting = [each for each in requests if self._planner.may_draft(each.number) and each.drafts]
        numbers = [each.number for each in drafting] if self._has_remote else []
        searched = self._planner.choose_searched(numbers, len(requests), length)
        trees = self._propose(drafting, _NODES * most, searched)
        chains = {each.number: best_chain(tree, most) for each, tree in zip(drafting, trees, strict=True)}
        sizes = {number: len(chain) for number, chain in host.items()}
        cut = self._planner.cut(chains, searched, len(requests), length, self._clock() - begin, sizes)
        return [cut[number].tokens.tolist() if number in cut else chain for number, chain in host.items()]

    def _trees(self, contexts: Sequence[Context], width: int) -> list[DraftTree]:
        requests = self._observe(contexts)
        drafting = [each for each in requests if each.drafts]
        numbers = [each.number for each in drafting]
        trees = dict(zip(numbers, self._propose(drafting, max(DEFAULT_MAX_NODES, width), set(numbers)), strict=True))
        return [trees.get(each.number, DraftTree.empty()) for each in requests]

    def _observe(self, contexts: Sequence[Context]) -> list[RunningRequest]:
        """Return the requests of ``contexts``. Drafters learn from their new tokens; ended requests are released."""
        requests, ended = self._running.update(contexts)
        for each in ended:
            self._end(each)
        self.drafter.observe({each.number: each.new for each in requests if len(each.new)})
        for each in requests:
            if not len(each.new):
                self._planner.begin(each.number)
            tokens = each.new if len(each.new) else each.tokens
            each.drafts = each.drafts and bool(tokens.min() >= 0 and tokens.max() < self._vocab_size)
        return requests

    def _propose(self, requests: Sequence[RunningRequest], nodes: int, searched: Set[int]) -> Sequence[DraftTree]:
        """Draft for ``requests``. Searches remote datastores only for the requests whose numbers are in ``searched``."""
        if not requests:
            return []
        return self.drafter.propose(
            [
                DraftRequest(
                    each.number,
                    each.tokens,
                    nodes,
                    settings=SAMPLED if each.sampled else GREEDY,
                    options=DEFAULT_OPTIONS if each.number in searched else self._without_remote,
                )
                for each in requests
            ]
        )

    def _end(self, request: RunningRequest) -> None:
        self.drafter.release(request.number)
        self._planner.end(request.number)
        if self._appender is not None:
            self._appender.add(request.answer)
        if self._on_finish is not None:
            with self._failures.guard(before="on_finish: "):
                self._on_finish(FinishedText(request.key, request.tokens, request.prompt_tokens))

    def _guarded(self, work: Callable[[], Result]) -> Result | None:
        """Return the result of ``work``; None after an error or while the breaker is open.

        After an error, all requests are forgotten.
        """
        if not self._breaker.allows_call():
            return None
        try:
            found = work()
        except USER_CODE_ERRORS as error:
            self._breaker.record_failure()
            self._failures.add(type(error).__name__, first_line(error))
            for each in self._running.clear():
                with self._failures.guard():  # the release may fail too
                    self.drafter.release(each.number)
                    self._planner.end(each.number)
            return None
        self._breaker.record_success()
        return found

    def _count(self, sizes: Sequence[int], begin: float) -> None:
        self._counts["steps"] += 1
        self._counts["drafts"] += sum(size > 0 for size in sizes)
        self._counts["draft_tokens"] += sum(sizes)
        self._counts["draft_seconds"] += self._clock() - begin
