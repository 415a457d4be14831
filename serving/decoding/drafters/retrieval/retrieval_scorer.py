"""Scores the trees of one retrieval source with calibrated acceptance probabilities, and learns from the accepted tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.calibration.calibration import Calibration, Part
from suffolk.serving.decoding.drafters.calibration.calibrator import Calibrator, Prior, score_trees
from suffolk.serving.decoding.drafters.calibration.rescale import BREADTH, ENOUGH, knows_noise, with_noise
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest, Generated

Ids = npt.NDArray[np.int32]
NO_TOKENS: Ids = np.empty(0, np.int32)


def nodes_wanted(request: DraftRequest) -> int:
    """The number of nodes to look up for ``request``. Noise reweighting chooses among more nodes than may be proposed."""
    most = request.max_nodes
    return max(most, min(ENOUGH, BREADTH * most)) if knows_noise(request.settings) else most


def known_end(ids: Ids, vocab_size: int) -> Ids:
    """The part of ``ids`` after the last id outside ``vocab_size``. A match cannot contain unknown ids."""
    if not len(ids) or ids.max() < vocab_size:
        return ids
    return ids[int(np.flatnonzero(ids >= vocab_size)[-1]) + 1 :]


class RetrievedTree(NamedTuple):
    """The uncalibrated tree for a request's text with ``path`` appended.

    ``origin``: the part of the source that was searched. Each part has calibrators of its own. "" is the whole source.
    """

    path: Ids
    tree: DraftTree
    origin: str = ""


class RetrievalScorer:
    """Calibrates the trees of one source, and keeps the trees of the current step for learning. Not thread-safe.

    Sampled and greedy requests have separate calibrators, because sampled requests accept fewer of the most likely tokens.
    So have the requests of each tenant (``DraftOptions.tenant``), because response times reveal what was learned.
    """

    def __init__(self, calibration: Calibration | Part, source: str, prior: Prior) -> None:
        """``source``: the source's name in ``calibration``. ``prior``: the prior of new calibrators."""
        self._calibration, self._source, self._prior = calibration, source, prior
        self._calibrators: dict[str, Calibrator] = {}  # by name; few, since the operator names the tenants
        for name in (source, f"{source}, sampled"):
            self._named(name)
        self._requests: dict[int, DraftRequest] = {}
        self._found: dict[int, list[RetrievedTree]] = {}

    def begin(self, request: DraftRequest) -> None:
        """Begin a step, and forget the trees of the last step."""
        self._requests[request.request_id] = request
        self._found[request.request_id] = []

    def expected_tokens(self, request: DraftRequest, tree: DraftTree) -> float:
        """The expected number of accepted tokens of ``tree``. Raises InvalidArgument if ``tree`` is malformed."""
        return float(self._calibrator(request).score(tree).scores.sum())

    def score(self, request: DraftRequest, found: Sequence[RetrievedTree]) -> list[DraftTree]:
        """The trees of ``found`` with calibrated scores, reweighted by the target's noise if it is known.

        The trees are kept until ``observe``. Raises InvalidArgument if a tree is malformed. Then none is kept.
        """
        return self.score_all([request], [found])[0]

    def score_all(
        self, requests: Sequence[DraftRequest], found: Sequence[Sequence[RetrievedTree]]
    ) -> list[list[DraftTree]]:
        """``score`` of the trees of each of ``requests``."""
        calibrators = [
            calibrator
            for request, retrieved in zip(requests, found, strict=True)
            for calibrator in [self._calibrator(request, each.origin) for each in retrieved]
        ]
        scored = iter(score_trees(calibrators, [each.tree for retrieved in found for each in retrieved]))
        for request, retrieved in zip(requests, found, strict=True):
            self._found[request.request_id] += retrieved
        return [
            [with_noise(request, next(scored), len(each.path)) for each in retrieved]
            if knows_noise(request.settings)
            else list(islice(scored, len(retrieved)))
            for request, retrieved in zip(requests, found, strict=True)
        ]

    def observe(self, generated: Generated) -> None:
        """Learn from the ``generated`` tokens which nodes were accepted. Trees on other paths are skipped."""
        for request_id, tokens in generated.items():
            for each in self._found.pop(request_id, ()):
                size = len(each.path)
                if len(tokens) > size and (not size or np.array_equal(tokens[:size], each.path)):
                    self._calibrator(self._requests[request_id], each.origin).learn(each.tree, tokens[size:])

    def release(self, request_id: int) -> None:
        """Forget a request that has ended."""
        self._found.pop(request_id, None)
        self._requests.pop(request_id, None)

    def clear(self) -> None:
        """Forget all requests."""
        self._found.clear()
        self._requests.clear()

    def _calibrator(self, request: DraftRequest, origin: str = "") -> Calibrator:
        sampled = ", sampled" if request.settings.temperature > 0 else ""
        tenant = f", tenant {request.options.tenant}" if request.options.tenant else ""
        part = f", {origin}" if origin else ""
        return self._named(f"{self._source}{part}{sampled}{tenant}")

    def _named(self, name: str) -> Calibrator:
        if name not in self._calibrators:
            self._calibrators[name] = self._calibration.text(name, self._prior)
        return self._calibrators[name]
