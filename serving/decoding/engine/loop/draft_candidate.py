"""The planner's view of one request's draft."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(slots=True)
class DraftCandidate:
    """One request's draft in a step: its scores, its cost and its result.

    Attributes:
        request_id: the number of the request.
        scores: float32[n], falling: the probability that the path to each node is accepted.
        of_models: bool[n], nodes that only models proposed.
        seconds: the request's share of the drafting time, without ``model_seconds`` and ``prefill_seconds``.
        model_seconds: the request's share of the passes of models.
        prefill_seconds: the request's share of the prefill of models.
        verified: the first nodes, by score, that the target verifies. The planner may only raise it.
        accepted: verified nodes that the target accepted.
        accepted_of_models: accepted nodes that only models proposed.
    """

    request_id: int
    scores: npt.NDArray[np.float32]
    of_models: npt.NDArray[np.bool_]
    seconds: float = 0.0
    model_seconds: float = 0.0
    prefill_seconds: float = 0.0
    verified: int = 0
    accepted: int = 0
    accepted_of_models: int = 0

    def accept(self, path: npt.NDArray[np.int64], accepted: int) -> None:
        """Record that the first ``accepted`` nodes of ``path`` are in the text."""
        self.accepted = accepted
        self.accepted_of_models = int(self.of_models[path[:accepted]].sum())
