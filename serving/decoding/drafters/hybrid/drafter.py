"""The hybrid drafter merges the calibrated drafts of several drafters into one tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from suffolk.datastore import _native
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.tree_paths import accepted_length
from suffolk.serving.decoding.drafters.calibration.calibration import Calibration
from suffolk.serving.decoding.drafters.drafter_entry import LoadContext, Options
from suffolk.serving.decoding.drafters.hybrid.explanation import Explanation
from suffolk.serving.decoding.drafters.hybrid.gated_drafter import ANY_TOKEN, GatedDrafter, GatedSource
from suffolk.serving.decoding.drafters.registry import neural_bits
from suffolk.serving.decoding.drafters.retrieval.datastore import DatastoreDrafter
from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.drafters.retrieval.retrieval_source import RetrievalSource, ScaledDrafts
from suffolk.serving.decoding.drafters.retrieval.with_request_texts import WithRequestTexts, request_texts
from suffolk.serving.decoding.engine.loop.drafter import (
    CacheDrafter,
    Drafter,
    DraftRequest,
    FeatureDrafter,
    Generated,
    GeneratedLogits,
    LogitsDrafter,
    datastore_names,
)
from suffolk.serving.decoding.engine.policy.acceptance_model import AcceptanceModel

if TYPE_CHECKING:
    import torch

    from suffolk.serving.decoding.engine.model.kv_cache import KVCache


_RETRIEVAL = "retrieval"
"""The name under which the acceptance model learns all retrieval sources together."""


class _FirstNodes(NamedTuple):
    """The nodes of depth 1 of one source's merged trees for a request, and the sum of their unscaled scores."""

    drafts: _native.Drafts
    place: int
    score: float


_NO_NODES: dict[str, _FirstNodes] = {}


class HybridDrafter:
    """Merges the drafts of all sources into one tree. Not thread-safe.

    Each source and each neural drafter has a gate (``GatedSource``, ``GatedDrafter``). The gate opens if the tokens that the draft
    is expected to add to earlier drafts save more time than the draft takes. The trees are merged into a trie. The nodes with the
    highest scores are kept.

    Attributes:
        layers: the target's layers whose hidden states the neural drafters read (``FeatureDrafter``).
        reads_logits: whether a source reads the logits of generated tokens (``LogitsDrafter``).
        model_sources: source bits of the neural drafters (``MixedDrafter``).
        datastores: names of the datastores of all drafters (``DatastoreReader``).
    """

    name = "hybrid"

    def __init__(
        self,
        sources: Sequence[RetrievalSource],
        models: Sequence[Drafter] = (),
        calibration: Calibration | None = None,
        vocab_size: int = ANY_TOKEN,
    ) -> None:
        """Take ownership of all given drafters: ``close`` closes them.

        Args:
            sources: retrieval sources.
            models: neural drafters. A retrieval source among them (token recycling) counts as a source.
            calibration: holds the calibrators of the neural drafters in this hybrid.
            vocab_size: the target's. A neural draft with other ids is a failed draft.
        """
        known = calibration or Calibration()
        self._sources = [GatedSource(each) for each in (*sources, *models) if isinstance(each, RetrievalSource)]
        self._models = [
            GatedDrafter(each, known.neural(f"{each.name} in {self.name}"), vocab_size)
            for each in models
            if not isinstance(each, RetrievalSource)
        ]
        self.model_sources = neural_bits() if self._models else 0
        self.datastores = tuple(name for each in (*sources, *models) for name in datastore_names(each))
        self._acceptance = AcceptanceModel()
        self._first: dict[int, dict[str, _FirstNodes]] = {}  # by request and source; only sources with nodes
        self._retrieved: dict[int, DraftTree] = {}  # by request: nodes likely to be verified; empty without models
        self._drafters: list[GatedSource | GatedDrafter] = [*self._sources, *self._models]
        self._explanation: Explanation | None = None
        self._readers = {each: each.drafter.layers for each in self._models if isinstance(each.drafter, FeatureDrafter)}
        sources = [each.source for each in self._sources]
        self._learners = [each for each in sources if isinstance(each, LogitsDrafter) and each.reads_logits]
        self.reads_logits = bool(self._learners)
        self.layers = tuple(sorted({layer for layers in self._readers.values() for layer in layers}))

    def explain(self, explanation: Explanation) -> None:
        """Add all further decisions on neural drafters to ``explanation``."""
        self._explanation = explanation

    def attach(self, cache: KVCache) -> None:
        """See ``CacheDrafter``."""
        for model in self._models:
            if isinstance(model.drafter, CacheDrafter):
                model.drafter.attach(cache)

    def follow(self, request_id: int, features: torch.Tensor) -> None:
        """See ``FeatureDrafter``."""
        for model, layers in self._readers.items():
            columns = [self.layers.index(layer) for layer in layers]
            model.follow(request_id, features if len(columns) == len(self.layers) else features[:, columns])

    def learn_logits(self, generated: Sequence[GeneratedLogits]) -> None:
        """See ``LogitsDrafter``."""
        for learner in self._learners:
            learner.learn_logits(generated)

    def propose(self, requests: Sequence[DraftRequest]) -> Sequence[DraftTree]:
        most = [each.max_nodes for each in requests]
        parts = self._retrieve(requests, most)
        trees: Sequence[DraftTree] = _native.merge(parts, most)
        if not self._models:
            return trees
        trees, places = list(trees), range(len(requests))
        requests = [self._expect(request, tree) for request, tree in zip(requests, trees, strict=True)]
        for model in self._models:
            more = model.add(requests, trees)
            if any(more):
                parts.append(ScaledDrafts(_native.Drafts(more), places, [1.0] * len(requests)))
                trees = list(_native.merge(parts, most))
        if self._explanation is not None:
            for model in self._models:
                for decision in model.decisions.values():
                    self._explanation.add(model.name, decision)
        return trees

    def _retrieve(self, requests: Sequence[DraftRequest], most: Sequence[int]) -> list[ScaledDrafts]:
        """The trees of all sources. The factor of a tree's scores is the acceptance of its source in the request."""
        parts: list[ScaledDrafts] = []
        expected, least = [0.0] * len(requests), [each.budget.least_score for each in requests]
        self._first |= {each.request_id: {} for each in requests}
        for index, source in enumerate(self._sources):
            key = f"{index} {source.name}"  # there may be several datastores
            drafts, places = source.draft(requests, expected)
            if not len(drafts.trees):
                continue
            factors = [self._acceptance.scale(key, requests[at].request_id) for at in places]
            first, scores, likely = _native.judge(
                drafts, [most[at] for at in places], factors, [least[at] for at in places]
            )
            for number, at in enumerate(places):
                if first.has_trees(number):
                    self._first[requests[at].request_id][key] = _FirstNodes(first, number, scores[number])
                    expected[at] = max(expected[at], likely[number])
            parts.append(ScaledDrafts(drafts, places, factors))
        return parts

    def _expect(self, request: DraftRequest, tree: DraftTree) -> DraftRequest:
        """``request`` with the tokens expected from retrieval in its budget: in this step, and on average."""
        likely = tree.likely(request.budget.least_score)
        self._retrieved[request.request_id] = likely
        expected = float(likely.scores.sum()) * self._acceptance.scale(_RETRIEVAL, request.request_id)
        others, idle = self._acceptance.in_a_step(request.request_id)
        return replace(request, budget=replace(request.budget, expected=expected, others=others, idle=idle))

    @property
    def prefetches(self) -> bool:
        """See ``PrefetchingDrafter``."""
        return any(source.prefetches for source in self._sources)

    def prefetch(self, requests: Sequence[DraftRequest], trees: Sequence[DraftTree]) -> None:
        """See ``PrefetchingDrafter``."""
        for source in self._sources:
            source.prefetch(requests, trees)

    def observe(self, generated: Generated) -> None:
        self._learn_first(generated)
        for request_id, tokens in generated.items():
            if request_id in self._retrieved:
                self._learn(request_id, self._retrieved.pop(request_id), tokens)
        drafted = dict.fromkeys(generated, 0)
        for source in self._sources:
            source.observe(generated, drafted)
        for model in self._models:
            model.observe(generated)

    def release(self, request_id: int) -> None:
        self._first.pop(request_id, None)
        self._retrieved.pop(request_id, None)
        self._acceptance.release(request_id)
        for each in self._drafters:
            each.release(request_id)

    def _learn_first(self, generated: Generated) -> None:
        """Learn whether each source proposed the first of the new tokens."""
        found = [(each, name, nodes) for each in generated for name, nodes in self._first.pop(each, _NO_NODES).items()]
        accepted = _native.accepted_lengths([(nodes.drafts, nodes.place, generated[each]) for each, _, nodes in found])
        for (each, name, nodes), is_accepted in zip(found, accepted, strict=True):
            self._acceptance.learn(name, each, nodes.score, is_accepted, True)

    def _learn(self, request_id: int, retrieved: DraftTree, tokens: npt.NDArray[np.int32]) -> None:
        """Learn how many of ``tokens`` retrieval proposed, whether or not a model proposed them too."""
        accepted = min(len(tokens) - 1, accepted_length([retrieved], tokens))
        self._acceptance.learn(_RETRIEVAL, request_id, float(retrieved.scores.sum()), accepted, True)
        self._acceptance.count(request_id, accepted)

    def stats(self) -> dict[str, float]:
        """The counters of each drafter under its name, the sum of each counter, and "model_seconds" (``MixedDrafter``)."""
        total: dict[str, float] = {"model_seconds": sum(each.seconds for each in self._models)}
        for drafter in self._drafters:
            for key, value in drafter.stats().items():
                for name in (key, f"{drafter.name}: {key}"):
                    total[name] = total.get(name, 0) + value
        return total

    def close(self) -> None:
        for drafter in self._drafters:
            drafter.close()


def load_datastores(context: LoadContext, options: Options) -> RetrievalSource | HybridDrafter:
    """A drafter that searches all datastores of ``context``. Raises InvalidArgument if there are none."""
    context = replace(context, calibration=context.calibration or Calibration())
    sources, texts = _datastores(context, "datastore"), request_texts(context)
    if len(sources) == 1:
        return WithRequestTexts(sources[0], texts)
    return HybridDrafter([*sources, *texts], calibration=context.calibration)


def load_hybrid(context: LoadContext, options: Options) -> HybridDrafter:
    """A drafter that merges prompt lookup, the datastores and the models of ``context``.

    Raises InvalidArgument if there are neither datastores nor models.
    """
    context = replace(context, calibration=context.calibration or Calibration())
    sources = [] if context.models and not context.retrievers else _datastores(context, "hybrid")
    texts: list[RetrievalSource] = [
        PromptLookupDrafter(context.vocab_size, context.limits, context.calibration),
        *request_texts(context),
        *sources,
    ]
    return HybridDrafter(texts, context.models, context.calibration, context.vocab_size)


def _datastores(context: LoadContext, name: str) -> list[RetrievalSource]:
    if not context.retrievers:
        raise InvalidArgument(
            f"drafter {name} needs a datastore; open one (on the command line: --datastore PATH or grpc://HOST:PORT/NAME)",
        )
    for store in context.retrievers:
        if not hasattr(store, "draft_batch"):
            raise InvalidArgument(f"drafter {name}: {store!r} is not a datastore; open it first, with suffolk.open")
    return [
        DatastoreDrafter(store, context.vocab_size, context.limits, context.calibration, context.prefetch)
        for store in context.retrievers
    ]
