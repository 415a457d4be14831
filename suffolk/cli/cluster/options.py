"""The options that the commands of a cluster share."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from suffolk.cli.options import setting
from suffolk.cli.options.setting import option
from suffolk.datastore.errors import InvalidArgument, NotFound, Unsupported


@dataclass(frozen=True, kw_only=True)
class RayOptions(setting.Options):
    ray: str = option("auto", "address of Ray, HOST:PORT; 'auto' is the one on this machine", metavar="ADDRESS")

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Connect to Ray. Raises Unsupported: it is not installed; others as ``connected`` of ``build_index.on_ray``."""
        try:
            importlib.import_module("suffolk.serving.cluster.lifecycle")  # and with it all that the extra installs
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in ("ray", "yaml", "aiohttp"):
                raise
            raise Unsupported(
                f"{error.name} is not installed, and clusters need it; pip install 'suffolk[ray]'"
            ) from None
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
            raise InvalidArgument(f"cluster: {', '.join(found)} are up; name one with --cluster")
        return found[0]


def report(line: str) -> None:
    """Print progress."""
    print(line, file=sys.stderr, flush=True)
