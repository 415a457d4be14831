"""A clock of the host's work: processor time, and the given times of passes that do not run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from unittest.mock import patch


@contextlib.contextmanager
def replaced_clock(now: Callable[[], float]) -> Iterator[None]:
    """Inside the block ``now`` replaces ``time.perf_counter`` in the whole process."""
    with patch.object(time, "perf_counter", now):
        yield


class HostClock:
    """Seconds of processor time of this process. A part can be given another time. Not thread-safe."""

    def __init__(self) -> None:
        self._given = 0.0  # seconds of all given times
        self._offset = 0.0

    def now(self) -> float:
        return time.process_time() + self._offset

    def worked(self) -> float:
        """The time without the parts that were given another time."""
        return self.now() - self._given

    @contextlib.contextmanager
    def taking(self, seconds: float) -> Iterator[None]:
        """Let the work of the block take ``seconds``, however long it takes."""
        begin = time.process_time()
        yield
        self._offset += seconds - (time.process_time() - begin)
        self._given += seconds
