"""Scores the trees of one retrieval source with calibrated acceptance probabilities, and learns from what was accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.drafters.calibration.calibration import Calibration, Part
from suffolk.serving.drafters.calibration.calibrator import Calibrator, Prior
from suffolk.serving.drafters.calibration.noise_reweighting import BREADTH, ENOUGH, knows_noise, with_noise
from suffolk.serving.engine.loop.drafter import DraftRequest

Ids = npt.NDArray[np.int32]
NO_TOKENS: Ids = np.empty(0, np.int32)


def nodes_wanted(request: DraftRequest) -> int:
    """How many nodes to look up for ``request``: more than its budget where noise reweighting will choose among them."""
    most = request.max_nodes
    return max(most, min(ENOUGH, BREADTH * most)) if knows_noise(request.settings) else most


def known_end(ids: Ids, vocab_size: int) -> Ids:
    """The part of ``ids`` behind the last id outside ``vocab_size``: no match of the source reaches further back."""
    unknown = np.flatnonzero(ids >= vocab_size)
    return ids[int(unknown[-1]) + 1 :] if len(unknown) else ids


@dataclass(frozen=True, slots=True)
class RetrievedTree:
    """``tree`` as its source found it for the request's text with ``path`` appended."""

    path: Ids
    tree: DraftTree


class RetrievalScorer:
    """Calibrates the trees of one source, and remembers those of the current step for each request. Not thread-safe.

    Sampled and greedy requests have separate calibrators: at a temperature above 0 fewer of the most likely tokens are accepted.
    """

    def __init__(self, calibration: Calibration | Part, source: str, prior: Prior) -> None:
        """``source``: its name in ``calibration``, whose learners begin at ``prior``."""
        self._greedy, self._sampled = (calibration.text(name, prior) for name in (source, f"{source}, sampled"))
        self._requests: dict[int, DraftRequest] = {}
        self._found: dict[int, list[RetrievedTree]] = {}

    def begin(self, request: DraftRequest) -> None:
        """Begin a step: forget the trees of the step before."""
        self._requests[request.request_id] = request
        self._found[request.request_id] = []

    def expected_tokens(self, request: DraftRequest, tree: DraftTree) -> float:
        """The expected number of accepted tokens of ``tree``. Raises InvalidArgument if it is malformed."""
        return float(self._calibrator(request).score(tree).scores.sum())

    def score(self, request: DraftRequest, found: Sequence[RetrievedTree]) -> list[DraftTree]:
        """Return the trees of ``found`` with calibrated scores, reweighted by the target's noise where it is known.

        They are remembered until ``observe``. Raises InvalidArgument for a malformed tree, and then remembers none.
        """
        calibrator = self._calibrator(request)
        scored = [calibrator.score(each.tree) for each in found]
        self._found[request.request_id] += found
        if not knows_noise(request.settings):
            return scored
        return [with_noise(request, tree, len(each.path)) for tree, each in zip(scored, found, strict=True)]

    def observe(self, request_id: int, tokens: Ids) -> None:
        """Learn from the target's ``tokens`` which nodes were accepted; trees whose path was not taken teach nothing."""
        found = [
            (each.tree, tokens[len(each.path) :])
            for each in self._found.pop(request_id, ())
            if len(tokens) > len(each.path) and np.array_equal(tokens[: len(each.path)], each.path)
        ]
        if found:
            calibrator = self._calibrator(self._requests[request_id])
            for tree, followed in found:
                calibrator.learn(tree, followed)

    def release(self, request_id: int) -> None:
        """Forget a request that has ended."""
        self._found.pop(request_id, None)
        self._requests.pop(request_id, None)

    def clear(self) -> None:
        """Forget all requests."""
        self._found.clear()
        self._requests.clear()

    def _calibrator(self, request: DraftRequest) -> Calibrator:
        return self._sampled if request.settings.temperature > 0 else self._greedy
