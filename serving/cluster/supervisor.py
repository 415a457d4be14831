"""Keeps the wanted servers of a cluster running: starts, replaces and stops their actors."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from suffolk.build_index.on_ray.nodes import alive_nodes
from suffolk.datastore.errors import SuffolkError
from suffolk.datastore.periodic_thread import PeriodicThread
from suffolk.serving.cluster.config import ClusterConfig
from suffolk.serving.cluster.node import named_actors
from suffolk.serving.cluster.published_topology import PublishedTopology, topologies_of
from suffolk.serving.cluster.server_actor import THREADS, PlacedServer, ServerActor
from suffolk.serving.cluster.server_spec import ServerSpec, wanted_servers

MAX_RETRY_SECONDS = 30.0
"""Longest pause before a failed server is started again. The first pause is a second. Each further pause is twice as
long."""
State = Literal["idle", "starting", "ready", "stopping", "failed"]


@dataclass
class ManagedServer:
    """A server that runs, or that shall run.

    Attributes:
        spec: what runs, or what is tried next.
        state: idle: not started yet. failed: the server has ended, or could not start. It is started again at
            ``retry_at``.
        actor: handle of its actor; None without one.
        pending: reference to the result of the awaited call of the actor: start, wait or stop.
        placed: where it runs, or ran last.
        error: why it ended last.
        pause: seconds before the next start; 0 unless the last start failed.
        restarts: times that it has ended by itself.
        since: time of the last change of ``state``.
        lost: time of the server's last end; None while it runs.
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
        """Note that the server has ended or could not start, because of ``reason``. Kills its actor."""
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


def results_of(references: list[Any], seconds: float) -> list[tuple[Any, str]]:
    """For each call, the same as ``_result_of``, with an error if it has not ended after ``seconds``."""
    ended, _ = ray.wait(references, num_returns=len(references), timeout=seconds) if references else ([], [])
    return [_result_of(each) if each in ended else (None, "it does not answer") for each in references]


def _result_of(reference: Any) -> tuple[Any, str]:
    """The result of a call that has ended, and an empty text; or None and its error, in one line."""
    try:
        return ray.get(reference), ""
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        return None, str(cause) if isinstance(cause, SuffolkError) else f"{type(cause).__name__}: {cause}"
    except ray.exceptions.RayError as error:
        return None, f"its process has ended ({type(error).__name__})"


LOG = logging.getLogger("suffolk.cluster")
_POLL_SECONDS = 0.25
_PLACE_SECONDS = 60.0
"""Seconds that Ray may take to place an actor, in addition to the start of its server."""
_ADOPT_SECONDS = 5.0
_EVENTS = 200


class Supervisor:
    """Runs the servers of ``config`` as actors in the Ray namespace ``namespace``, in a thread. Thread-safe.

    Its actors outlive it. A new supervisor adopts the actors that it finds.

    Attributes:
        config: the wanted cluster, which ``apply`` changes.
    """

    def __init__(self, config: ClusterConfig, namespace: str, on_topology: Callable[[PublishedTopology], None]) -> None:
        """``on_topology``: called with each new version of the topology files; it must not raise."""
        self.config = config
        self._namespace = namespace
        self._on_topology = on_topology
        self._topology = PublishedTopology()
        self._lock = threading.RLock()
        self._slots = {slot.spec.name: slot for slot in _found(namespace)}
        self._events: deque[dict[str, Any]] = deque(maxlen=_EVENTS)
        self._thread = PeriodicThread("supervisor", self._round, _POLL_SECONDS)
        self._thread.wake()

    def apply(self, config: ClusterConfig) -> None:
        """Make ``config`` the wanted cluster. Running servers whose spec changes are replaced one at a time."""
        with self._lock:
            self.config = config

    def slots(self) -> list[ManagedServer]:
        """The servers, stores first."""
        with self._lock:
            return sorted(self._slots.values(), key=lambda slot: (slot.spec.kind != "store", slot.spec.name))

    def events(self) -> list[dict[str, Any]]:
        """The last events: ``time``, ``server``, ``event``, and the ``seconds`` that a server was away."""
        with self._lock:
            return [*self._events]

    def settled(self) -> bool:
        """Whether exactly the wanted servers run, all with their wanted specs."""
        wanted = wanted_servers(self.config, alive_nodes())
        with self._lock:
            return {name: slot.spec for name, slot in self._slots.items()} == wanted and all(
                slot.state == "ready" for slot in self._slots.values()
            )

    def close(self, graceful: bool) -> list[str]:
        """Stop all servers, workers first; returns their names. Without ``graceful``, running requests are cut off."""
        self._thread.close()
        with self._lock:
            names = [slot.spec.name for slot in self.slots()]
            for kind in ("worker", "store"):
                slots = [slot for slot in self._slots.values() if slot.spec.kind == kind and slot.actor is not None]
                if graceful:
                    results_of([slot.actor.stop.remote() for slot in slots], self.config.grace + _PLACE_SECONDS)
                for slot in slots:
                    slot.kill()
            self._slots.clear()
        return names

    def _round(self) -> None:
        """Reconcile once. Then wait up to _POLL_SECONDS for the end of an awaited call."""
        with self._lock:
            self._reconcile()
            waiting = {slot.pending: slot for slot in self._slots.values() if slot.pending is not None}
        ended, _ = ray.wait([*waiting], timeout=_POLL_SECONDS) if waiting else ([], [])
        with self._lock:
            for reference in ended:
                self._settle(waiting[reference], reference)
        if waiting:
            self._thread.wake()

    def _reconcile(self) -> None:
        """Start missing servers, and stop servers that are unwanted or outdated."""
        self._publish()  # before workers start, because they read the files
        wanted, now = wanted_servers(self.config, alive_nodes()), time.monotonic()
        for name, slot in [*self._slots.items()]:
            if slot.state == "starting" and now - slot.since > slot.spec.start_seconds + _PLACE_SECONDS:
                slot.fail(f"Ray has not placed it; it needs {slot.spec.cpus:g} CPUs and {slot.spec.gpus:g} GPUs", now)
            if name not in wanted and slot.state != "stopping":
                self._stop(slot)
        for name, spec in wanted.items():
            slot = self._slots.setdefault(name, ManagedServer(spec))
            if slot.state in ("idle", "failed") and now >= slot.retry_at and self._may_start(spec):
                self._start(slot, spec)
        if all(slot.state == "ready" for slot in self._slots.values()):
            outdated = [slot for name, slot in self._slots.items() if slot.spec != wanted[name]]
            if outdated:
                self._stop(outdated[0])

    def _may_start(self, spec: ServerSpec) -> bool:
        """Whether the server may start. Workers wait for starting stores."""
        stores = [slot for slot in self._slots.values() if slot.spec.kind == "store"]
        return spec.kind == "store" or not any(slot.state in ("idle", "starting") for slot in stores)

    def _start(self, slot: ManagedServer, spec: ServerSpec) -> None:
        slot.spec = spec
        slot.actor = (
            ray.remote(ServerActor)
            .options(
                name=f"{spec.name}#{secrets.token_hex(4)}",
                namespace=self._namespace,
                lifetime="detached",
                num_cpus=spec.cpus,
                num_gpus=spec.gpus,
                max_concurrency=THREADS,
                scheduling_strategy=NodeAffinitySchedulingStrategy(spec.node, soft=False) if spec.node else "SPREAD",
            )
            .remote(spec)
        )
        slot.change("starting", slot.actor.start.remote(self._topology))

    def _publish(self) -> None:
        """Write changed topology files on every node. While no store server is ready, their old file stays, so that clients try
        its servers again."""
        stores = {
            slot.placed.node.name: address
            for slot in self._slots.values()
            if slot.spec.kind == "store" and not slot.spec.shard and slot.placed and (address := slot.address())
        }
        topologies = {**self._topology.topologies, **topologies_of(stores, self.config.stores)}
        if topologies == self._topology.topologies:
            return
        self._topology = PublishedTopology(time.time_ns(), topologies)
        for slot in self._slots.values():
            if slot.actor is not None:
                slot.actor.publish.remote(self._topology)
        self._on_topology(self._topology)

    def _stop(self, slot: ManagedServer) -> None:
        if slot.state == "ready":
            slot.change("stopping", slot.actor.stop.remote())
            self._record(slot, "stopping")
        else:
            slot.kill()
            del self._slots[slot.spec.name]

    def _settle(self, slot: ManagedServer, reference: Any) -> None:
        """Process the end of the call that ``slot`` awaited."""
        if slot.pending is not reference:
            return
        result, error = _result_of(reference)
        now = time.monotonic()
        if slot.state == "stopping":
            slot.kill()
            del self._slots[slot.spec.name]
            self._record(slot, "stopped")
        elif slot.state == "starting" and not error:
            slot.placed, slot.pause = result, 0.0
            slot.change("ready", slot.actor.wait.remote())
            away = {} if slot.lost is None else {"seconds": round(now - slot.lost, 2)}
            slot.lost = None
            self._record(slot, "ready", **away)
        else:
            event = "lost" if slot.state == "ready" else "not started"
            slot.fail(error or str(result), now)
            self._record(slot, event, reason=slot.error)

    def _record(self, slot: ManagedServer, event: str, **more: Any) -> None:
        self._events.append({"time": time.time(), "server": slot.spec.name, "event": event, **more})
        LOG.info("%s: %s %s", slot.spec.name, event, more or "")


def _found(namespace: str) -> Iterator[ManagedServer]:
    """The servers that an earlier supervisor left. Servers that were still starting are ended."""
    actors = [actor for name, actor in named_actors(namespace).items() if "#" in name]
    described = [actor.describe.remote() for actor in actors]
    for actor, (found, _) in zip(actors, results_of(described, _ADOPT_SECONDS), strict=True):
        if found is None or found[1] is None:
            ray.kill(actor)
        else:
            yield ManagedServer(found[0], "ready", actor, actor.wait.remote(), found[1])
