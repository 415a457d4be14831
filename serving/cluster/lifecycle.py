"""Starts, shows, changes and stops a cluster on a running Ray."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from time import sleep
from typing import Any

import ray

from suffolk.build_index.on_ray.nodes import RayNode
from suffolk.datastore.errors import Field, InvalidArgument, NotFound, ResourceExhausted, Unavailable
from suffolk.datastore.version import __version__
from suffolk.serving.cluster.config import ClusterConfig, StoresConfig, WorkersConfig
from suffolk.serving.cluster.controller import CONTROLLER, THREADS, Controller, namespace_of
from suffolk.serving.cluster.copies import with_copies, with_shards
from suffolk.serving.cluster.deployment import (
    check_front,
    deploy_front,
    front_runs,
    front_settings,
    remove_front,
)
from suffolk.serving.cluster.node import HEAD, check_nodes, named_actors
from suffolk.serving.cluster.server_spec import check_stores

Report = Callable[[str], None]
"""Gets one line about the progress."""
_POLL_SECONDS = 0.5
_ANSWER_SECONDS = 30.0
logging.getLogger("ray.serve").setLevel(logging.WARNING)  # at INFO, its lines would mix with the progress here


def up(config: ClusterConfig, report: Report) -> None:
    """Start a cluster, and wait until all of it takes requests. If it is up already with the same config, finish its start.

    On any error, and on KeyboardInterrupt, nothing is left running that this call started.

    Raises:
        InvalidArgument: it is up with another config, or a node cannot run it.
        Unavailable: a server does not start; the message holds its error.
        ResourceExhausted: an address is in use, or a disk is full.
    """
    if (running := _find(config.name)) is not None:
        if ray.get(running.config.remote()) != config:
            raise InvalidArgument(
                f"cluster {config.name} is up with other settings; change it with 'suffolk cluster update', or stop it first"
            )
        report(f"cluster {config.name} is up already")
        _finish(running, config, report)
        return
    nodes, config = _checked(config, None)
    if config.front is not None:
        check_front(config.front)
    report(f"{len(nodes)} nodes: {', '.join(node.name for node in nodes)}")
    try:
        _finish(_start_controller(config), config, report)
    except BaseException:
        _remove(config.name, graceful=False)
        raise


def update(config: ClusterConfig, report: Report) -> None:
    """Change a running cluster to ``config``, and to this version of Suffolk. Servers are replaced one at a time.

    Raises:
        NotFound: it is not up.
        InvalidArgument: ``folder`` changes, TLS of the workers behind a front is turned on or off, or a node cannot run it.
        Unavailable: a replaced server does not start. The others go on with their old settings.
    """
    controller = _require(config.name)
    old: ClusterConfig = ray.get(controller.config.remote())
    if old.folder != config.folder:
        raise InvalidArgument(
            Field("folder"),
            f" is {config.folder!r}, and {old.folder!r} in the running cluster; stop it first to move it",
        )
    if old.front and config.front and bool(old.workers.https) != bool(config.workers.https):
        raise InvalidArgument(
            "options of workers turns TLS on or off, and the front would reach only a part of the workers meanwhile; stop the "
            "cluster first, or leave front out until then"
        )
    _, config = _checked(config, old.stores)
    ray.get(controller.apply.remote(config))
    if ray.get(controller.version.remote()) != __version__:  # Ray restarts the controller with the new version
        ray.kill(controller, no_restart=False)
    _finish(controller, config, report)
    if config.front is None:
        remove_front(config.name)


def scale(cluster: str, workers: int | None, stores: int | None, report: Report) -> None:
    """Change how many workers and stores run. None leaves a number as it is. Raises the errors of ``update``."""
    old: ClusterConfig = ray.get(_require(cluster).config.remote())
    new = replace(
        old,
        workers=old.workers if workers is None else replace(old.workers, count=workers),
        stores=old.stores if stores is None else replace(old.stores, count=stores),
    )
    update(new, report)


def status(cluster: str) -> dict[str, Any]:
    """The result of ``Controller.status``. Raises NotFound: the cluster is not up."""
    found: dict[str, Any] = ray.get(_require(cluster).status.remote(), timeout=_ANSWER_SECONDS)
    return found


def down(cluster: str) -> list[str]:
    """Stop a cluster; returns the names of what was stopped, none if nothing ran."""
    return _remove(cluster, graceful=True)


def clusters() -> list[str]:
    """The names of the clusters that are up on this Ray."""
    prefix = namespace_of("")
    found = ray.util.list_named_actors(all_namespaces=True)
    return sorted(each["namespace"].removeprefix(prefix) for each in found if each["name"] == CONTROLLER)


def _start_controller(config: ClusterConfig) -> Any:
    """The controller of a new cluster, which starts its servers."""
    actor = ray.remote(Controller).options(
        name=CONTROLLER,
        namespace=namespace_of(config.name),
        lifetime="detached",
        num_cpus=0,
        resources=HEAD,
        max_concurrency=THREADS,
        max_restarts=-1,
        max_task_retries=-1,
    )
    return actor.remote(config)


def _checked(config: ClusterConfig, before: StoresConfig | None) -> tuple[list[RayNode], ClusterConfig]:
    """The nodes that are alive, and ``config`` with the copies of its live stores. ``before``: the stores of the running cluster.

    Raises the errors of ``up``.
    """
    found = check_nodes(config.folder, config.stores.live)
    nodes = [*found]
    check_stores(config.stores, nodes)
    config = with_copies(config, nodes, before.copies_at if before else {})
    config = with_shards(config, found, before.shards_at if before else {})
    _require_resources(config.workers)
    return nodes, config


def _require_resources(workers: WorkersConfig) -> None:
    """Raises ResourceExhausted: all nodes together have fewer CPUs or GPUs than the workers need."""
    for name, field, each in (("CPU", "cpus", workers.cpus), ("GPU", "gpus", workers.gpus)):
        total = ray.cluster_resources().get(name, 0.0)  # type: ignore[no-untyped-call]
        if workers.count * each > total:
            raise ResourceExhausted(
                Field("workers"),
                f": {workers.count} with {each:g} {name}s each need more than the {total:g} of this Ray; lower count or "
                f"{field} of workers, or add nodes",
            )


def _find(cluster: str) -> Any:
    """The controller of a cluster; None if it is not up."""
    try:
        return ray.get_actor(CONTROLLER, namespace_of(cluster))
    except ValueError:
        return None


def _require(cluster: str) -> Any:
    if (controller := _find(cluster)) is None:
        up_ones = ", ".join(clusters()) or "none"
        raise NotFound(f"cluster {cluster} is not up on this Ray (up: {up_ones}); start it with 'suffolk cluster up'")
    return controller


def _finish(controller: Any, config: ClusterConfig, report: Report) -> None:
    """Wait for the servers, then deploy the front. A running front stays if its settings and its version of the code
    are unchanged."""
    _wait(controller, report)
    if config.front is not None:
        settings = front_settings(config)
        if not front_runs(config.name) or ray.get(controller.front.remote()) != settings:
            deploy_front(config.front, config)
            ray.get(controller.keep_front.remote(settings))
        report(f"front on http://{config.front.endpoint}/v1")


def _wait(controller: Any, report: Report) -> None:
    """Wait until all wanted servers run. Raises Unavailable: one does not start."""
    last = ""
    while True:
        settled = ray.get(controller.settled.remote())
        states: dict[str, tuple[str, str]] = ray.get(controller.states.remote())
        for name, (_, error) in states.items():
            if error:
                raise Unavailable(f"{name}: {error}")
        line = ", ".join(f"{name} {state}" for name, (state, _) in states.items())
        if line != last:
            report(line)
            last = line
        if settled:
            return
        sleep(_POLL_SECONDS)


def _remove(cluster: str, graceful: bool) -> list[str]:
    """Stop the front, and the servers even if that fails; returns the names of what was stopped."""
    try:
        front = ["front"] if remove_front(cluster) else []
    finally:
        servers = _remove_servers(cluster, graceful)
    return [*front, *servers]


def _remove_servers(cluster: str, graceful: bool) -> list[str]:
    if (controller := _find(cluster)) is None:
        return []
    try:
        stopped: list[str] = ray.get(controller.close.remote(graceful))
    finally:
        for actor in named_actors(namespace_of(cluster)).values():  # the controller, and actors that it has missed
            ray.kill(actor)
    return [*stopped, CONTROLLER]
