"""The options that the commands of a cluster share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from suffolk.cli.options import setting
from suffolk.cli.options.setting import option
from suffolk.datastore.errors import Field, InvalidArgument, NotFound


@dataclass(frozen=True, kw_only=True)
class RayOptions(setting.Options):
    ray: str = option("auto", "address of Ray, HOST:PORT; 'auto' is the one on this machine", metavar="ADDRESS")

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Connect to Ray. Raises ModuleNotFoundError: it is not installed; others as ``connected`` of ``build_index.on_ray``."""
        from suffolk.build_index.on_ray.connection import connected

        with connected(self.ray):
            yield


@dataclass(frozen=True, kw_only=True)
class NamedOptions(RayOptions):
    """For commands that name a running cluster."""

    cluster: str | None = option(None, "name of the cluster (default: the only one)", metavar="NAME")

    def name(self) -> str:
        """The cluster's name. Raises NotFound: none is up; InvalidArgument: several are."""
        from suffolk.serving.cluster.lifecycle import clusters

        if self.cluster is not None:
            return self.cluster
        if not (found := clusters()):
            raise NotFound("no cluster is up on this Ray; start one with 'suffolk cluster up'")
        if len(found) > 1:
            raise InvalidArgument(Field("cluster"), f": {', '.join(found)} are up; name one with --cluster")
        return found[0]


def report(line: str) -> None:
    """Print progress."""
    print(line, file=sys.stderr, flush=True)
