"""Connects to a Ray cluster."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray

from suffolk.build_index.on_ray.failures import short
from suffolk.datastore.errors import Field, InvalidArgument, Unavailable, Unsupported

CONNECT_SECONDS = 5.0


@contextmanager
def connected(address: str, threads: int = 0) -> Iterator[None]:
    """A connection to the cluster at ``address``. At the end the tasks of this process are ended.

    Args:
        address: "local" starts a cluster of this machine alone, for the time of the context; "auto" is the running cluster.
        threads: cores of a local cluster; 0: all.

    Raises:
        InvalidArgument: ``address`` has a wrong form.
        Unavailable: there is no cluster. Unsupported: it has another version of Ray or Python.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    options: dict[str, Any] = {"include_dashboard": False, "num_cpus": threads or None} if address == "local" else {}
    if address not in ("local", "auto"):
        _require_answer(address)
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except (ConnectionError, TimeoutError, ray.exceptions.RayError, ValueError) as error:
        raise Unavailable(
            Field("ray"),
            f": {address}: no cluster can be joined ({short(error)}); run 'ray start --head' on one machine, and "
            "'ray start --address=HEAD:6379' on each other one, this one included",
        ) from error
    except RuntimeError as error:  # Ray raises it if versions differ
        raise Unsupported(
            Field("ray"), f": {address}: {short(error)}; use the same versions on all machines"
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
            f": {address}: not an address; give HOST:PORT, auto or local. Of a cluster, run the command on one of its nodes",
        )
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise Unavailable(
            Field("ray"),
            f": {address}: no answer ({error}); check the address and the network, or start a cluster there with "
            "'ray start --head'",
        ) from error
