"""One tree from several drafters, their calibrated scores being on one scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.drafters.calibration.calibration import Calibration
from suffolk.serving.drafters.hybrid.accepted_length import reach
from suffolk.serving.drafters.hybrid.explanation import Explanation
from suffolk.serving.drafters.hybrid.gated_drafter import ANY_TOKEN, GatedDrafter
from suffolk.serving.drafters.hybrid.leaf_retrieval import LeafRetrieval
from suffolk.serving.drafters.hybrid.merge import merge
from suffolk.serving.drafters.registry import network_bits
from suffolk.serving.drafters.retrieval.retrieval_source import RetrievalSource
from suffolk.serving.engine.loop.drafter import (
    CacheDrafter,
    Drafter,
    DraftRequest,
    FeatureDrafter,
    GeneratedLogits,
    LogitsDrafter,
    PrefetchingDrafter,
)
from suffolk.serving.engine.policy.acceptance_model import AcceptanceModel
from suffolk.serving.engine.policy.draft_gate import GateDecision

if TYPE_CHECKING:
    import torch

    from suffolk.serving.engine.model.kv_cache import KVCache


_RETRIEVAL = "retrieval"
"""All sources of text together."""


class Addition(Protocol):
    """Adds drafts where that should repay its time: a neural drafter, or retrieval behind drafted tokens.

    Attributes:
        name: of what it adds; ``decisions``: of the last step, by the number of the request.
    """

    name: str
    decisions: dict[int, GateDecision]

    def add(self, requests: Sequence[DraftRequest], trees: Sequence[DraftTree]) -> list[list[DraftTree]]:
        """For each request further trees, beside those that are there; none where that does not pay."""
        ...


@dataclass(slots=True)
class _Step:
    """What retrieval found for a request: of each source its first tokens with their probabilities, and the merged tree."""

    first: dict[str, DraftTree]
    tree: DraftTree


class HybridDrafter:
    """Asks every source of text, then each network where it should add enough; merges all trees as a trie, and keeps the best
    nodes. Not thread-safe.

    Attributes:
        layers: whose hidden states of the target its networks want (``FeatureDrafter``); empty if none does.
        reads_logits: whether one of its sources reads the logits of generated tokens (``LogitsDrafter``).
        model_sources: ``Source`` bits of its neural drafters (``MixedDrafter``).
    """

    name = "hybrid"

    def __init__(
        self,
        sources: Sequence[RetrievalSource],
        networks: Sequence[Drafter] = (),
        calibration: Calibration | None = None,
        vocab_size: int = ANY_TOKEN,
    ) -> None:
        """Takes over all of them: ``close`` closes them. ``networks``: are asked where that pays; those of them that score their
        drafts are sources like the others. ``calibration``: where it learns what networks are worth beside others. ``vocab_size``:
        the target's, beyond which a network's drafts are missed ones."""
        known = calibration or Calibration()
        self._sources = [*sources, *(each for each in networks if isinstance(each, RetrievalSource))]
        networks = [each for each in networks if not isinstance(each, RetrievalSource)]
        self._networks = [
            GatedDrafter(drafter, known.network(f"{drafter.name} in {self.name}"), vocab_size) for drafter in networks
        ]
        self.model_sources = network_bits() if networks else 0
        self._acceptance = AcceptanceModel()
        self._retrieved: dict[int, _Step] = {}
        self._grafts = LeafRetrieval(self._sources)
        self._additions: list[Addition] = [*self._networks, self._grafts]
        self._drafters: list[RetrievalSource | GatedDrafter] = [*self._sources, *self._networks]
        self._explanation: Explanation | None = None
        self._readers = {
            network: network.drafter.layers for network in self._networks if isinstance(network.drafter, FeatureDrafter)
        }
        self._learners = [each for each in self._sources if isinstance(each, LogitsDrafter) and each.reads_logits]
        self.reads_logits = bool(self._learners)
        self.layers = tuple(sorted({layer for layers in self._readers.values() for layer in layers}))

    def explain(self, explanation: Explanation) -> None:
        """Tell ``explanation`` of all drafts from now on."""
        self._explanation = explanation

    def attach(self, cache: KVCache) -> None:
        """See ``CacheDrafter``."""
        for network in self._networks:
            if isinstance(network.drafter, CacheDrafter):
                network.drafter.attach(cache)

    def follow(self, request_id: int, features: torch.Tensor) -> None:
        """See ``FeatureDrafter``."""
        for network, layers in self._readers.items():
            columns = [self.layers.index(layer) for layer in layers]
            network.follow(request_id, features if len(columns) == len(self.layers) else features[:, columns])

    def learn_logits(self, generated: Sequence[GeneratedLogits]) -> None:
        """See ``LogitsDrafter``."""
        for learner in self._learners:
            learner.learn_logits(generated)

    def propose(self, requests: Sequence[DraftRequest]) -> list[DraftTree]:
        scored = [source.draft(requests) for source in self._sources]
        found = [self._scaled(request, each) for request, *each in zip(requests, *scored, strict=True)]
        trees = [self.merged(request, each) for request, each in zip(requests, found, strict=True)]
        retrieved = list(trees)
        if self._additions:
            requests = [self._told(request, tree) for request, tree in zip(requests, trees, strict=True)]
        for addition in self._additions:
            for place, more in enumerate(addition.add(requests, trees)):
                if more:
                    found[place] += more
                    trees[place] = self.merged(requests[place], found[place])
        if self._explanation is not None:
            for request, tree, before in zip(requests, trees, retrieved, strict=True):
                number = request.request_id
                decisions = {each.name: each.decisions[number] for each in self._additions if number in each.decisions}
                self._explanation.propose(number, len(request.tokens), len(before), decisions, tree)
        return trees

    def _scaled(self, request: DraftRequest, scored: Sequence[Sequence[DraftTree]]) -> list[DraftTree]:
        """The trees of all sources, with scores as far as each source is right in this text."""
        first = {
            source.name: merge(trees, request.max_nodes) for source, trees in zip(self._sources, scored, strict=True)
        }
        self._retrieved[request.request_id] = _Step(first, DraftTree.empty())
        scales = [self._acceptance.scale(source.name, request.request_id) for source in self._sources]
        return [
            replace(tree, scores=(tree.scores * scale).astype(np.float32))
            for scale, trees in zip(scales, scored, strict=True)
            for tree in trees
        ]

    def _told(self, request: DraftRequest, tree: DraftTree) -> DraftRequest:
        """``request`` with what retrieval should bring it, now and in a step of its answer."""
        likely = tree.likely(request.budget.least_score)
        self._retrieved[request.request_id].tree = likely
        expected = float(likely.scores.sum()) * self._acceptance.scale(_RETRIEVAL, request.request_id)
        others, idle = self._acceptance.in_a_step(request.request_id)
        return replace(request, budget=replace(request.budget, expected=expected, others=others, idle=idle))

    def merged(self, request: DraftRequest, trees: Sequence[DraftTree]) -> DraftTree:
        """The step's tree for ``request``, from ``trees`` of one source each."""
        return merge(trees, request.max_nodes)

    def prefetch(self, requests: Sequence[DraftRequest], trees: Sequence[DraftTree]) -> None:
        """See ``PrefetchingDrafter``."""
        for source in self._sources:
            if isinstance(source, PrefetchingDrafter):
                source.prefetch(requests, trees)

    def observe(self, request_id: int, tokens: npt.NDArray[np.int32]) -> None:
        if self._explanation is not None:
            self._explanation.observe(request_id, tokens)
        self._learn(request_id, tokens)
        for each in (*self._drafters, self._grafts):
            each.observe(request_id, tokens)

    def release(self, request_id: int) -> None:
        if self._explanation is not None:
            self._explanation.release(request_id)
        self._retrieved.pop(request_id, None)
        self._acceptance.release(request_id)
        for each in (*self._drafters, self._grafts):
            each.release(request_id)

    def _learn(self, request_id: int, tokens: npt.NDArray[np.int32]) -> None:
        """The target's ``tokens`` followed: how right each source is about the next token, and how far retrieval gets alone."""
        step = self._retrieved.pop(request_id, None)
        if step is None:
            return
        for name, tree in step.first.items():
            children = tree.parents < 0
            hit = bool((tree.tokens[children] == tokens[0]).any())
            self._acceptance.learn(name, request_id, float(tree.scores[children].sum()), hit, bool(children.any()))
        if self._additions:
            accepted = min(len(tokens) - 1, reach(step.tree, tokens))
            self._acceptance.learn(_RETRIEVAL, request_id, float(step.tree.scores.sum()), accepted, True)
            self._acceptance.count(request_id, accepted)

    def stats(self) -> dict[str, float]:
        """The drafters' counters added up, and each one's own under its name; how often retrieval was asked behind drafts; and
        the time of models, for ``MixedDrafter``."""
        total = self._grafts.stats() | {"model_seconds": sum(each.seconds for each in self._networks)}
        for drafter in self._drafters:
            for key, value in drafter.stats().items():
                for name in (key, f"{drafter.name}: {key}"):
                    total[name] = total.get(name, 0) + value
        return total

    def close(self) -> None:
        for drafter in self._drafters:
            drafter.close()
