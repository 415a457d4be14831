"""The place of one server in a cluster, and what happens there."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Literal

import ray

from suffolk.datastore.errors import SuffolkError
from suffolk.serving.cluster.server_actor import PlacedServer
from suffolk.serving.cluster.server_spec import ServerSpec

MAX_RETRY_SECONDS = 30.0
"""Longest pause before a server that does not start is tried again. The first pause is a second, and each one doubles."""
State = Literal["idle", "starting", "ready", "stopping", "failed"]


@dataclass
class ManagedServer:
    """A server that runs, or that shall run.

    Attributes:
        spec: what runs, or what is tried next.
        state: idle: not started yet. failed: it has ended, or has not started; it is started again at ``retry_at``.
        actor: handle of its actor; None without one.
        pending: reference to the result of the actor's call that is awaited: start, wait or stop.
        placed: where it runs, or ran last.
        error: why it ended last.
        pause: seconds before the next start; 0 unless the last one failed.
        restarts: times that it has ended by itself.
        since: time of the last change of ``state``; ``lost``: of its last end, None while it runs.
    """

    spec: ServerSpec
    state: State = "idle"
    actor: Any = None
    pending: Any = None
    placed: PlacedServer | None = None
    error: str = ""
    pause: float = 0.0
    restarts: int = 0
    retry_at: float = 0.0
    since: float = field(default_factory=time.monotonic)
    lost: float | None = None

    def change(self, state: State, pending: Any = None) -> None:
        """Enter ``state``, and await ``pending``."""
        self.state, self.pending, self.since = state, pending, time.monotonic()

    def fail(self, reason: str, now: float) -> None:
        """The server has ended, or has not started: ``reason``. Its actor is killed."""
        if self.state == "ready":
            self.restarts, self.lost = self.restarts + 1, now
        else:
            self.pause = min(2 * self.pause or 1.0, MAX_RETRY_SECONDS)
        self.error = reason
        self.retry_at = now + self.pause
        self.kill()
        self.change("failed")

    def kill(self) -> None:
        """End the actor, and with it the server, immediately."""
        if self.actor is not None:
            ray.kill(self.actor)
        self.actor = None

    def address(self) -> str | None:
        """The gRPC address of a server that takes requests; None for any other."""
        return self.placed.address.grpc if self.state == "ready" and self.placed else None


def result_of(reference: Any) -> tuple[Any, str]:
    """The result of a call that has ended, and an empty text; or None and its error, in one line."""
    try:
        return ray.get(reference), ""
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        return None, str(cause) if isinstance(cause, SuffolkError) else f"{type(cause).__name__}: {cause}"
    except ray.exceptions.RayError as error:
        return None, f"its process has ended ({type(error).__name__})"
