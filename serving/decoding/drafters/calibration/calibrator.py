"""Learns acceptance probabilities of retrieved nodes online (csrc/drafting/calibrator.h)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffolk.datastore import _native
from suffolk.serving.decoding.drafters.calibration.confidence import Reliability


@dataclass(frozen=True, slots=True)
class Prior:
    """Coefficients of the prior log-odds of acceptance.

    They are linear in log(match length), log-odds of the share (the node's count divided by its parent's), log(parent's count) and
    log(depth).
    """

    constant: float
    match: float
    share: float
    count: float
    depth: float


class Calibrator:
    """P(node accepted | parent accepted) by match length, share, parent's count and depth, for one source. Not thread-safe.

    The prior of a fine table is a coarse table of match length and share. The prior of the coarse table is a ``Prior``. Evidence
    decays by the factor ``decay`` per observed tree.

    Attributes:
        native: the calibrator, for ``_native.score_drafts`` and ``_native.learn_drafts``.
        reliability: its reliability diagram.
    """

    def __init__(self, prior: Prior, decay: float = 0.999) -> None:
        self.native = _native.Calibrator(prior.constant, prior.match, prior.share, prior.count, prior.depth, decay)
        self.reliability = Reliability(native=self.native.reliability)

    def state(self) -> npt.NDArray[np.float64]:
        """float64[n], the state for ``restore``."""
        return np.asarray(self.native.state(), np.float64)

    def restore(self, state: npt.NDArray[np.float64]) -> None:
        """Load a state. Raises InvalidArgument if it is malformed."""
        self.native.restore(state)
