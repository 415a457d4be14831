"""The calibrators of all sources of an engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from suffolk.serving.decoding.drafters.calibration.calibrator import Calibrator, Prior
from suffolk.serving.decoding.drafters.calibration.confidence import Confidence, Reliability

TEXT, NETWORK = "text", "network"
"""Kinds of sources. A text source has a ``Calibrator``. A neural drafter or token recycling has a ``Confidence``."""


class Learner(Protocol):
    """A calibrator of a retrieval source or of a neural drafter."""

    @property
    def reliability(self) -> Reliability: ...
    def state(self) -> npt.NDArray[np.float64]: ...
    def restore(self, state: npt.NDArray[np.float64]) -> None: ...


T = TypeVar("T", bound=Learner)


@dataclass(frozen=True, slots=True)
class Learned:
    """The state of one calibrator.

    Attributes:
        source: the name of its source.
        kind: TEXT or NETWORK.
        state: float64[n], as from ``Learner.state``.
        reliability: float64[m], as from ``Reliability.state``.
    """

    source: str
    kind: str
    state: npt.NDArray[np.float64]
    reliability: npt.NDArray[np.float64]


class Calibration:
    """The calibrators of an engine, by source. Drafters with the same source share one. Not thread-safe."""

    def __init__(self, known: list[Learned] | None = None) -> None:
        """``known``: states of an earlier run. States of unused sources are kept."""
        self._unused = {(each.kind, each.source): each for each in known or []}
        self._texts: dict[str, Calibrator] = {}
        self._networks: dict[str, Confidence] = {}

    def text(self, source: str, prior: Prior) -> Calibrator:
        """The calibrator of a retrieval source; a new one starts from ``prior``. Raises InvalidArgument for a malformed state."""
        if source not in self._texts:
            self._texts[source] = self._restore(TEXT, source, Calibrator(prior))
        return self._texts[source]

    def neural(self, source: str) -> Confidence:
        """The calibrator of a neural drafter. Raises the errors of ``text``."""
        if source not in self._networks:
            self._networks[source] = self._restore(NETWORK, source, Confidence())
        return self._networks[source]

    def learned(self) -> list[Learned]:
        """The states of all calibrators."""
        learners: list[tuple[str, str, Learner]] = [(TEXT, *each) for each in self._texts.items()]
        learners += [(NETWORK, *each) for each in self._networks.items()]
        states = [Learned(name, kind, each.state(), each.reliability.state()) for kind, name, each in learners]
        return [*states, *self._unused.values()]

    def _restore(self, kind: str, source: str, learner: T) -> T:
        known = self._unused.pop((kind, source), None)
        if known is not None:
            learner.restore(known.state)
            learner.reliability.restore(known.reliability)
        return learner


class Part:
    """The part of a calibration for retrieval sources inside a drafter called ``owner``. Not thread-safe.

    These sources get calibrators of their own, because the same sources may also draft outside of ``owner``.
    """

    def __init__(self, whole: Calibration, owner: str) -> None:
        self._whole, self._owner = whole, owner

    def text(self, source: str, prior: Prior) -> Calibrator:
        """See ``Calibration.text``."""
        return self._whole.text(f"{source} in {self._owner}", prior)
