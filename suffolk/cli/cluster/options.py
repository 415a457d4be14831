"""The options that the commands of a cluster share, and the file of a cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suffolk.cli.commands import command_module
from suffolk.cli.options import setting
from suffolk.cli.options.parser import make_parser
from suffolk.cli.options.reading import merge
from suffolk.cli.options.setting import option, settings_of
from suffolk.datastore.errors import Field, InvalidArgument, NotFound
from suffolk.serving.cluster.config import ClusterConfig, option_words, read_config


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


def read_cluster(path: Path) -> ClusterConfig:
    """The cluster in a file.

    Raises:
        InvalidArgument: ``suffolk serve`` or ``suffolk worker`` has no such option, or a value is wrong. Others as ``read_config``.
    """
    config = read_config(path)
    for of, command, options in (
        ("stores", "serve", config.stores.options),
        ("workers", "worker", config.workers.options),
    ):
        try:
            _check(command, options)
        except InvalidArgument as error:
            raise InvalidArgument(f"{path}: options of {of}: {error}") from None
    return config


def _check(command: str, options: Mapping[str, Any]) -> None:
    """Raises InvalidArgument: ``command`` has no such option, or the value does not fit."""
    words, module = [*option_words(options)], command_module(command)
    settings = settings_of(module.Options, words)
    merge(make_parser(f"suffolk {command}", "", "", settings), settings, command, words)
