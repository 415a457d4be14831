"""Whether a server accepts calls, and why not."""

from __future__ import annotations


class Readiness:
    """The state of a server that health checks report. Thread-safe."""

    def __init__(self, reason: str = "starting") -> None:
        self._reason = reason

    @property
    def reason(self) -> str:
        """Why no calls are accepted; empty if they are."""
        return self._reason

    def is_set(self) -> bool:
        """Whether calls are accepted."""
        return not self._reason

    def set(self) -> None:
        """Calls are accepted from now on."""
        self._reason = ""

    def clear(self, reason: str) -> None:
        """Calls are not accepted from now on, for this reason. A reason that was given before stays."""
        self._reason = self._reason or reason
