"""Connects to a Ray cluster, and turns Ray's errors into Suffolk's."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
import ray.exceptions as errors

from suffolk.datastore.errors import (
    Field,
    Internal,
    InvalidArgument,
    ResourceExhausted,
    SuffolkError,
    Unavailable,
    Unsupported,
)
from suffolk.datastore.hub import short_reason

CONNECT_SECONDS = 5.0
LOST = (
    errors.WorkerCrashedError,
    errors.NodeDiedError,
    errors.ObjectLostError,
    errors.OutOfMemoryError,
    errors.TaskCancelledError,
    errors.TaskUnschedulableError,  # a task is bound to a node that has ended
)


@contextmanager
def connected(address: str, threads: int = 0) -> Iterator[None]:
    """Connect to the cluster at ``address`` for the time of the context. At its end, the tasks of this process are ended.

    Args:
        address: "local" starts a cluster of this machine alone, for the time of the context. "auto" is the running cluster.
        threads: cores of a local cluster; 0: all.

    Raises:
        InvalidArgument: ``address`` has a wrong form.
        Unavailable: there is no cluster.
        Unsupported: the cluster has another version of Ray or Python.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    options: dict[str, Any] = {"include_dashboard": False, "num_cpus": threads or None} if address == "local" else {}
    if address not in ("local", "auto"):
        _require_answer(address)
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except (ConnectionError, TimeoutError, ray.exceptions.RayError, ValueError) as error:
        none_runs = address == "auto" and isinstance(error, ConnectionError)  # Ray's message would advise ray.init
        problem = "no cluster runs here" if none_runs else f"no cluster can be joined ({_short(error)})"
        raise Unavailable(
            Field("ray"),
            f": {address}: {problem}; run 'ray start --head' on one machine, and "
            "'ray start --address=HEAD:6379' on every other machine, this one included",
        ) from error
    except RuntimeError as error:  # Ray raises this error if versions differ
        raise Unsupported(
            Field("ray"), f": {address}: {_short(error)}; use the same versions on all machines"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _require_answer(address: str) -> None:
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdigit():
        raise InvalidArgument(
            Field("ray"),
            f": {address}: not an address; give HOST:PORT, auto or local, and run this on a node of the cluster",
        )
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise Unavailable(
            Field("ray"),
            f": {address}: no answer ({error}); check the address and the network, or start a cluster there with "
            "'ray start --head'",
        ) from error


class Lost(Exception):
    """A machine or a process of the cluster ended, and its work is lost."""


@contextmanager
def ray_errors() -> Iterator[None]:
    """Unwraps errors of Ray: the error of a task is raised as the task raised it.

    Raises:
        Lost: a node or a process ended.
        Internal: a task failed with an unknown error.
        ResourceExhausted, Unavailable: the cluster cannot go on.
    """
    try:
        yield
    except errors.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, SuffolkError):
            raise cause from None
        if isinstance(cause, LOST):
            raise _lost(cause) from error
        raise Internal(f"a task on the cluster failed ({type(cause).__name__}: {_short(cause)})") from error
    except LOST as error:
        raise _lost(error) from error
    except (errors.OutOfDiskError, errors.ObjectStoreFullError) as error:
        raise ResourceExhausted(
            f"a node's disk or object store is full ({_short(error)}); free space, or build with a smaller --segment-tokens, and "
            "run the command again to resume"
        ) from error
    except errors.RayError as error:
        raise Unavailable(
            f"the Ray cluster does not go on ({_short(error)}); run the command again to resume"
        ) from error


def _lost(error: BaseException) -> Lost:
    return Lost(f"a node or a process of the cluster ended ({type(error).__name__})")


def _short(error: BaseException) -> str:
    """The beginning of an error of Ray, which may have many lines, on one line."""
    return short_reason(error, most=300)
