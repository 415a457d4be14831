"""The interface of retrieval drafters. Their trees have calibrated scores, so they are merged (csrc/drafting/merge.h)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from suffolk.datastore import _native
from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.calibration.calibration import Calibration, Part
from suffolk.serving.decoding.drafters.calibration.calibrator import Prior
from suffolk.serving.decoding.drafters.retrieval.retrieval_scorer import Ids, RetrievalScorer
from suffolk.serving.decoding.engine.loop.drafter import Drafter, DraftRequest, Generated

PerRequest = TypeVar("PerRequest")


def merge(trees: Sequence[DraftTree], max_nodes: int) -> DraftTree:
    """The trie of all ``trees``, sorted by falling score with parents first, cut to ``max_nodes``.

    A path that several sources propose becomes one node with the bits of all these sources. The node's probability, given its
    parent, is the highest that these sources give. A node's score is the product of these probabilities along its path.

    Raises:
        InvalidArgument: a tree is not valid, a score is not within 0..1 or is above its parent's, or ``max_nodes`` is negative.
    """
    return _native.merge([ScaledDrafts(_native.Drafts([trees]), [0], [1.0])], [max_nodes])[0]


class ScaledDrafts(NamedTuple):
    """The trees of one source, for the requests at ``places`` in a step. ``factors``: factors of the scores, 0..1."""

    drafts: _native.Drafts
    places: Sequence[int]
    factors: Sequence[float]


def as_drafts(trees: Sequence[Sequence[DraftTree]]) -> _native.Drafts:
    """``trees`` without a copy if they are in C++ already."""
    return trees if isinstance(trees, _native.Drafts) else _native.Drafts(trees)


@runtime_checkable
class RetrievalSource(Drafter, Protocol):
    """A drafter whose ``propose`` merges the trees of ``draft``."""

    def propose(self, requests: Sequence[DraftRequest]) -> Sequence[DraftTree]:
        found, size = as_drafts(self.draft(requests)), len(requests)
        return _native.merge([ScaledDrafts(found, range(size), [1.0] * size)], [each.max_nodes for each in requests])

    def draft(self, requests: Sequence[DraftRequest]) -> Sequence[Sequence[DraftTree]]:
        """The trees of each request with calibrated scores: parents before children, not sorted by score.

        ``_native.Drafts`` take the least time, because no object is made for each tree.
        """
        ...

    def draft_after(self, requests: Sequence[DraftRequest], paths: Sequence[Sequence[Ids]]) -> list[list[DraftTree]]:
        """One tree for each path of each request: the draft for the request's text with the path appended.

        Called after ``draft`` in the same step.
        """
        ...


class TextSource(RetrievalSource, Generic[PerRequest]):
    """A source that searches the texts of its requests, and whose trees a ``RetrievalScorer`` scores. Not thread-safe.

    A subclass may keep an object for each request in ``_by_request``, by the request's id.
    """

    def __init__(self, calibration: Calibration | Part | None, prior: Prior) -> None:
        """``prior``: the prior of new calibrators."""
        self._scorer = RetrievalScorer(calibration or Calibration(), self.name, prior)
        self._calls = 0
        self._by_request: dict[int, PerRequest] = {}

    def draft_after(self, requests: Sequence[DraftRequest], paths: Sequence[Sequence[Ids]]) -> list[list[DraftTree]]:
        return [
            [self._draft_after(request, path) for path in each] for request, each in zip(requests, paths, strict=True)
        ]

    @abstractmethod
    def _draft_after(self, request: DraftRequest, path: Ids) -> DraftTree:
        """The draft for the request's text with ``path`` appended, with calibrated scores."""

    def observe(self, generated: Generated) -> None:
        self._scorer.observe(generated)

    def release(self, request_id: int) -> None:
        self._scorer.release(request_id)
        self._by_request.pop(request_id, None)

    def stats(self) -> dict[str, float]:
        return {"calls": self._calls, "failed": 0}

    def close(self) -> None:
        self._scorer.clear()
        self._by_request.clear()
