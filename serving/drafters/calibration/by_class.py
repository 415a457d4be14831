"""One learner for each class of requests: what is worth drafting for code says little about a conversation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from suffolk.serving.drafters.calibration.reliability import Reliability

COMMON = ""
"""The class of requests that name none; what is learned from any request is learned for it too."""
MOST_CLASSES = 64
"""Further classes share the common learner: callers choose the names."""


class Learner(Protocol):
    """Predicts, is told what came of it, and can be kept."""

    @property
    def reliability(self) -> Reliability: ...
    def state(self) -> npt.NDArray[np.float64]: ...
    def restore(self, state: npt.NDArray[np.float64]) -> None: ...


T = TypeVar("T", bound=Learner)


class ByClass(Generic[T]):
    """The learners of one source by class of requests. A new class begins with what is known of all. Not thread-safe.

    Attributes:
        known: each class's own learner, the common one first.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        """``make``: a learner that knows nothing."""
        self._make = make
        self.known: dict[str, T] = {COMMON: make()}

    def __getitem__(self, request_class: str) -> T:
        """Who predicts for requests of that class."""
        return self.known.get(request_class, self.known[COMMON])

    def taught(self, request_class: str) -> Iterator[T]:
        """Who learns from requests of that class: the class's own learner, made if there is none yet, and the common one."""
        if request_class not in self.known and len(self.known) < MOST_CLASSES:
            self.known[request_class] = self.open(self.known[COMMON].state())
        yield self.known[COMMON]
        if request_class != COMMON and request_class in self.known:
            yield self.known[request_class]

    def open(self, state: npt.NDArray[np.float64]) -> T:
        """A learner that knows ``state``. Raises InvalidArgument if that is none."""
        learner = self._make()
        learner.restore(state)
        return learner
