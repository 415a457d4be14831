"""The front as a Ray Serve deployment.

It forwards to workers instead of hosting an engine in each replica. So a worker has the same process, options, metrics
and drain with and without a cluster. The end of a replica ends no engine.
"""

from __future__ import annotations

import asyncio
import time
import urllib.request
from typing import Any

import ray
from ray import serve
from ray.serve.exceptions import RayServeException
from ray.serve.schema import ApplicationStatus
from starlette.applications import Starlette

from suffolk.datastore.errors import ResourceExhausted, Unavailable
from suffolk.serving.cluster.config import ClusterConfig, FrontConfig, front_rules
from suffolk.serving.cluster.controller import CONTROLLER, namespace_of
from suffolk.serving.cluster.front import front_app
from suffolk.serving.cluster.node import HEAD
from suffolk.serving.net.endpoint import Endpoint, check_free

_MAX_ONGOING = 4096
"""Requests that a replica forwards at a time; workers have limits of their own."""
_REFRESH_SECONDS = 0.25
_ANSWER_SECONDS = 10.0


class KnownWorkers:
    """The addresses of the workers of ``cluster``, from its controller. While the controller is away, the last known
    addresses."""

    def __init__(self, cluster: str) -> None:
        self._namespace = namespace_of(cluster)
        self._known: list[str] = []
        self._asked = 0.0
        self._asking: asyncio.Task[None] | None = None

    async def __call__(self) -> list[str]:
        if not self._known or time.monotonic() > self._asked + _REFRESH_SECONDS:
            if self._asking is None or self._asking.done():
                self._asking = asyncio.create_task(self._ask())
            if not self._known:
                await self._asking
        return self._known

    async def _ask(self) -> None:
        try:
            self._known = await ray.get_actor(CONTROLLER, self._namespace).workers.remote()
        except (ray.exceptions.RayError, ValueError):  # the controller restarts, or does not exist
            await asyncio.sleep(_REFRESH_SECONDS)
        self._asked = time.monotonic()


def check_front(config: FrontConfig) -> None:
    """Raises ResourceExhausted, PermissionDenied, InvalidArgument: the head node cannot listen on the address of the front."""
    if _serve_runs():  # Ray Serve has the address; if it has another, ``deploy_front`` raises
        return
    check = ray.remote(check_free).options(num_cpus=0, resources=HEAD)
    try:
        ray.get(check.remote(config.endpoint, "port of front"))
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None


def front_settings(cluster: ClusterConfig) -> tuple[Any, ...]:
    """All settings on which the replicas of the front of ``cluster`` depend."""
    front = cluster.front
    return (
        front,
        cluster.grace,
        front and front_rules(front.endpoint, cluster.workers.options),
        cluster.workers.https,
    )


def front_runs(cluster: str) -> bool:
    """Whether the front of ``cluster`` takes requests."""
    found = serve.status().applications.get(cluster) if _serve_runs() else None
    return found is not None and found.status == ApplicationStatus.RUNNING


def deploy_front(config: FrontConfig, cluster: ClusterConfig) -> None:
    """Start the front, or change a running front, and wait until it answers.

    Raises:
        Unavailable: Ray Serve does not start it; the message holds the error.
        ResourceExhausted: it does not answer.
    """
    name, hosts, client = cluster.name, front_rules(config.endpoint, cluster.workers.options), cluster.workers.https

    def build() -> Starlette:  # in the process of each replica
        return front_app(KnownWorkers(name), hosts, client.https() if client else None)

    deployment = serve.deployment(
        name="front",
        num_replicas=config.replicas,
        max_ongoing_requests=_MAX_ONGOING,
        ray_actor_options={"num_cpus": 0},
        health_check_period_s=2,
        health_check_timeout_s=5,
        graceful_shutdown_timeout_s=cluster.grace,
    )
    try:
        serve.start(proxy_location="HeadOnly", http_options={"host": config.host, "port": config.port})
        serve.run(deployment(serve.ingress(build)()).bind(), name=name, route_prefix="/")
    except (RuntimeError, TimeoutError, RayServeException, ray.exceptions.RayError) as error:
        raise Unavailable(
            f"front: Ray Serve does not start it ({error}); see 'ray status', and the logs of Ray Serve on the head node"
        ) from error
    _require_answer(config)


def remove_front(cluster: str) -> bool:
    """Stop the front of ``cluster``, and Ray Serve if it serves nothing else. Returns whether a front ran."""
    if not _serve_runs():
        return False
    applications = serve.status().applications
    if cluster in applications:
        serve.delete(cluster)
    if not {*applications} - {cluster}:
        serve.shutdown()  # type: ignore[no-untyped-call]
    return cluster in applications


def _require_answer(config: FrontConfig) -> None:
    """Raises ResourceExhausted: Ray Serve ran before on another address, and keeps that address."""
    here = Endpoint({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.host, config.host), config.port)
    try:
        with urllib.request.urlopen(f"http://{here}/livez", timeout=_ANSWER_SECONDS):
            return
    except OSError as error:
        raise ResourceExhausted(
            f"port of front: nothing answers on {here} ({error}); Ray Serve keeps the address at which it "
            "was started first: use that one, or end what else it serves"
        ) from None


def _serve_runs() -> bool:
    names: list[dict[str, Any]] = ray.util.list_named_actors(all_namespaces=True)
    return any(each["namespace"] == "serve" and each["name"] == "SERVE_CONTROLLER_ACTOR" for each in names)
