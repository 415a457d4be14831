"""What a source of text found for running requests: scored by what such finds were worth, which is learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.drafters.calibration.by_class import ByClass
from suffolk.serving.drafters.calibration.calibration import Calibration, Part
from suffolk.serving.drafters.calibration.calibrator import Calibrator, Prior
from suffolk.serving.drafters.calibration.noise_reweighting import BREADTH, ENOUGH, knows_noise, with_noise
from suffolk.serving.engine.loop.drafter import DraftRequest

Ids = npt.NDArray[np.int32]
NO_TOKENS: Ids = np.empty(0, np.int32)


def nodes_wanted(request: DraftRequest) -> int:
    """How many nodes to look up for ``request``: more than it may have where noise will tell which are the likeliest."""
    most = request.max_nodes
    return max(most, min(ENOUGH, BREADTH * most)) if knows_noise(request.settings) else most


def known_end(ids: Ids, vocab_size: int) -> Ids:
    """What stands behind the last of ``ids`` that a source of ``vocab_size`` ids does not know: no match of it reaches further."""
    unknown = np.flatnonzero(ids >= vocab_size)
    return ids[int(unknown[-1]) + 1 :] if len(unknown) else ids


@dataclass(frozen=True, slots=True)
class Behind:
    """``tree`` as its source found it for the text with ``path`` at the end."""

    path: Ids
    tree: DraftTree


class Retrieved:
    """One source's trees of the step for each request. Not thread-safe.

    A target that draws its tokens takes fewer of the likeliest ones than a greedy one, so each of the two has learners of its own.
    """

    def __init__(self, calibration: Calibration | Part, source: str, prior: Prior) -> None:
        """``source``: its name in ``calibration``, whose learners begin at ``prior``."""
        self._greedy, self._drawn = (calibration.text(name, prior) for name in (source, f"{source}, drawn"))
        self._requests: dict[int, DraftRequest] = {}
        self._found: dict[int, list[Behind]] = {}

    def begin(self, request: DraftRequest) -> None:
        """A new step: what was found before is forgotten."""
        self._requests[request.request_id] = request
        self._found[request.request_id] = []

    def promise(self, request: DraftRequest, tree: DraftTree) -> float:
        """Tokens that ``tree`` should bring. Raises InvalidArgument if it is none."""
        return float(self._learners(request)[request.request_class].scored(tree).scores.sum())

    def scored(self, request: DraftRequest, found: Sequence[Behind]) -> list[DraftTree]:
        """The trees of ``found`` with calibrated scores, in which the noise of the target's draws counts; remembered until
        ``observe``. Raises InvalidArgument for what is no tree, and then remembers none."""
        calibrator = self._learners(request)[request.request_class]
        scored = [calibrator.scored(each.tree) for each in found]
        self._found[request.request_id] += found
        if not knows_noise(request.settings):
            return scored
        return [with_noise(request, tree, len(each.path)) for tree, each in zip(scored, found, strict=True)]

    def observe(self, request_id: int, tokens: Ids) -> None:
        """Learn what the target's ``tokens`` behind the text say about what was found; behind other tokens than these, nothing."""
        found = [
            (each.tree, tokens[len(each.path) :])
            for each in self._found.pop(request_id, ())
            if len(tokens) > len(each.path) and np.array_equal(tokens[: len(each.path)], each.path)
        ]
        if found:
            request = self._requests[request_id]
            for calibrator in self._learners(request).taught(request.request_class):
                for tree, followed in found:
                    calibrator.learn(tree, followed)

    def release(self, request_id: int) -> None:
        """The request has ended."""
        self._found.pop(request_id, None)
        self._requests.pop(request_id, None)

    def clear(self) -> None:
        """All have."""
        self._found.clear()
        self._requests.clear()

    def _learners(self, request: DraftRequest) -> ByClass[Calibrator]:
        return self._drawn if request.settings.temperature > 0 else self._greedy
