"""Adds drafts from predicted texts to those of one retrieval source."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.drafters.retrieval.prediction import PredictionDrafter
from suffolk.serving.drafters.retrieval.retrieval_scorer import Ids
from suffolk.serving.drafters.retrieval.retrieval_source import RetrievalSource, propose_merged
from suffolk.serving.engine.loop.drafter import DraftRequest, PrefetchingDrafter, datastore_names


class WithPrediction:
    """One source, and the predictions of the requests that have one. Not thread-safe. Owns both drafters.

    Attributes:
        name: the source's.
        datastores: the source's (``DatastoreReader``).
    """

    def __init__(self, source: RetrievalSource, prediction: PredictionDrafter) -> None:
        self.name = source.name
        self.datastores = datastore_names(source)
        self._source, self._prediction = source, prediction

    def propose(self, requests: Sequence[DraftRequest]) -> list[DraftTree]:
        return propose_merged(self, requests)

    def draft(self, requests: Sequence[DraftRequest]) -> list[list[DraftTree]]:
        """See ``RetrievalSource``."""
        found, predicted = self._source.draft(requests), self._prediction.draft(requests)
        return [trees + more for trees, more in zip(found, predicted, strict=True)]

    def draft_after(self, requests: Sequence[DraftRequest], paths: Sequence[Sequence[Ids]]) -> list[list[DraftTree]]:
        """See ``RetrievalSource``. The drafts are those of the source alone."""
        return self._source.draft_after(requests, paths)

    def prefetch(self, requests: Sequence[DraftRequest], trees: Sequence[DraftTree]) -> None:
        """See ``PrefetchingDrafter``."""
        if isinstance(self._source, PrefetchingDrafter):
            self._source.prefetch(requests, trees)

    def observe(self, request_id: int, tokens: npt.NDArray[np.int32]) -> None:
        for each in (self._source, self._prediction):
            each.observe(request_id, tokens)

    def release(self, request_id: int) -> None:
        for each in (self._source, self._prediction):
            each.release(request_id)

    def stats(self) -> dict[str, float]:
        return self._source.stats()

    def close(self) -> None:
        for each in (self._source, self._prediction):
            each.close()
