"""One request's draft in a step, as the planner sees it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(slots=True)
class DraftCandidate:
    """One request's draft in a step, and what came of it.

    Attributes:
        request_id: whose.
        scores: float32[n], falling: the probability that the path to each node is accepted.
        of_models: bool[n], nodes that models alone proposed.
        seconds: the request's share of the time of drafting; besides, ``model_seconds`` of passes of models, ``prefill_seconds``.
        verified: nodes to verify, at first those that no planner may leave out.
        accepted: of these; ``accepted_of_models``: of those that models alone proposed.
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
        """The target accepted the first ``accepted`` nodes of ``path``."""
        self.accepted = accepted
        self.accepted_of_models = int(self.of_models[path[:accepted]].sum())
