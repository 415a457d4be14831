"""Adds drafts from requests' own texts to a retrieval source's drafts: from predictions, and from other samples of the prompt."""

from __future__ import annotations

from collections.abc import Sequence

from suffolk.datastore import _native
from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.drafter_entry import LoadContext
from suffolk.serving.decoding.drafters.retrieval.parallel_samples import ParallelSamplesDrafter
from suffolk.serving.decoding.drafters.retrieval.prediction import PredictionDrafter
from suffolk.serving.decoding.drafters.retrieval.retrieval_scorer import Ids
from suffolk.serving.decoding.drafters.retrieval.retrieval_source import RetrievalSource, as_drafts
from suffolk.serving.decoding.engine.loop.drafter import (
    DraftRequest,
    Generated,
    PrefetchingDrafter,
    datastore_names,
    prefetches,
)


def request_texts(context: LoadContext) -> list[RetrievalSource]:
    """The drafters from predictions and from parallel samples. They cost nothing if a request has no prediction and no parallel
    samples."""
    return [
        PredictionDrafter(context.calibration),
        ParallelSamplesDrafter(context.vocab_size, context.limits, context.calibration),
    ]


class WithRequestTexts(RetrievalSource):
    """One source, and the drafters of ``request_texts``. Not thread-safe. Owns all of them.

    Attributes:
        name: name of the source.
        datastores: names of the source's datastores (``DatastoreReader``).
    """

    def __init__(self, source: RetrievalSource, texts: Sequence[RetrievalSource]) -> None:
        self.name = source.name
        self.datastores = datastore_names(source)
        self._source, self._all = source, (source, *texts)
        self._prefetching = source if isinstance(source, PrefetchingDrafter) else None

    def draft(self, requests: Sequence[DraftRequest]) -> _native.Drafts:
        places = range(len(requests))
        return _native.gather([(as_drafts(each.draft(requests)), places) for each in self._all], len(requests))

    def draft_after(self, requests: Sequence[DraftRequest], paths: Sequence[Sequence[Ids]]) -> list[list[DraftTree]]:
        """The drafts come from the source alone."""
        return self._source.draft_after(requests, paths)

    @property
    def prefetches(self) -> bool:
        """See ``PrefetchingDrafter``."""
        return prefetches(self._prefetching)

    def prefetch(self, requests: Sequence[DraftRequest], trees: Sequence[DraftTree]) -> None:
        """See ``PrefetchingDrafter``."""
        if self._prefetching is not None:
            self._prefetching.prefetch(requests, trees)

    def observe(self, generated: Generated) -> None:
        for each in self._all:
            each.observe(generated)

    def release(self, request_id: int) -> None:
        for each in self._all:
            each.release(request_id)

    def stats(self) -> dict[str, float]:
        return self._source.stats()

    def close(self) -> None:
        for each in self._all:
            each.close()
