"""All that drafters have learned of what their drafts are worth, by source and class of requests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from suffolk.serving.drafters.calibration.by_class import COMMON, ByClass, T
from suffolk.serving.drafters.calibration.calibrator import Calibrator, Prior
from suffolk.serving.drafters.calibration.confidence import Confidence

TEXT, NETWORK = "text", "network"
"""Kinds of sources: their learners are a ``Calibrator`` and a ``Confidence``."""


@dataclass(frozen=True, slots=True)
class Learned:
    """What a learner knows.

    Attributes:
        source, request_class: whose it is; kind: TEXT or NETWORK.
        state: float64[n] of the learner; reliability: float64[m] of its diagram.
    """

    source: str
    request_class: str
    kind: str
    state: npt.NDArray[np.float64]
    reliability: npt.NDArray[np.float64]


class Calibration:
    """The learners of an engine's drafters, which share it: a source of the same name is the same source. Not thread-safe."""

    def __init__(self, known: list[Learned] | None = None) -> None:
        """``known``: from an earlier run; what no drafter asks for is kept for the next one."""
        self._unused = list(known or [])
        self._texts: dict[str, ByClass[Calibrator]] = {}
        self._networks: dict[str, ByClass[Confidence]] = {}

    def text(self, source: str, prior: Prior) -> ByClass[Calibrator]:
        """The learners of a source of text, which begin at ``prior`` where nothing is known. Raises InvalidArgument if what is
        known is no such state."""
        if source not in self._texts:
            self._texts[source] = self._open(source, TEXT, ByClass(partial(Calibrator, prior)))
        return self._texts[source]

    def network(self, source: str) -> ByClass[Confidence]:
        """The learners of a drafting network. Raises as ``text``."""
        if source not in self._networks:
            self._networks[source] = self._open(source, NETWORK, ByClass(Confidence))
        return self._networks[source]

    def learned(self) -> list[Learned]:
        """What is known now, source by source."""
        return [*self._of(TEXT, self._texts), *self._of(NETWORK, self._networks), *self._unused]

    def _open(self, source: str, kind: str, learners: ByClass[T]) -> ByClass[T]:
        own = [each for each in self._unused if (each.source, each.kind) == (source, kind)]
        for each in own:
            learner = learners.open(each.state)
            learner.reliability.restore(each.reliability)
            learners.known[each.request_class] = learner
        self._unused = [each for each in self._unused if (each.source, each.kind) != (source, kind)]
        return learners

    @staticmethod
    def _of(kind: str, sources: dict[str, ByClass[T]]) -> Iterator[Learned]:
        for source, learners in sources.items():
            for name, learner in learners.known.items():
                if name == COMMON or learner.reliability.weight:
                    yield Learned(source, name, kind, learner.state(), learner.reliability.state())


class Part:
    """``whole`` for sources of text that are part of a drafter called ``owner``: what they learn there is kept apart from what the
    same sources learn beside it, which drafts along the same text. Not thread-safe."""

    def __init__(self, whole: Calibration, owner: str) -> None:
        self._whole, self._owner = whole, owner

    def text(self, source: str, prior: Prior) -> ByClass[Calibrator]:
        """See ``Calibration.text``."""
        return self._whole.text(f"{source} in {self._owner}", prior)
