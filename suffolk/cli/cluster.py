"""A cluster of store servers, workers and an HTTP front on Ray.

Ray must run, on all nodes, with suffolk[ray] installed: 'ray start --head', then 'ray start
--address=HEAD:6379' on the others."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from suffolk.cli.options import setting
from suffolk.cli.options.config_file import command_settings
from suffolk.cli.options.parser import make_parser
from suffolk.cli.options.reading import merge
from suffolk.datastore.errors import Field, InvalidArgument, NotFound
from suffolk.datastore.settings import REQUIRED, Within, argument, option
from suffolk.serving.cluster.config import ClusterConfig, option_words, read_config

EXAMPLES = """cluster.yaml:
  name: code
  folder: /var/lib/suffolk
  stores: {datastores: {code: s3://bucket/code}}
  workers: {model: /models/qwen, count: 2, gpus: 1}
  front: {port: 8000}"""
_COLUMNS = ("server", "state", "node", "grpc", "http", "version", "serves", "restarts")


@dataclass(frozen=True, kw_only=True)
class RayOptions(setting.Options):
    ray: str = option("auto", "address of Ray, HOST:PORT; 'auto' is the one on this machine", metavar="ADDRESS")

    def connected(self) -> AbstractContextManager[None]:
        """Connect to Ray. Raises ModuleNotFoundError without Ray. Other errors as ``connected`` of ``build_index.on_ray``."""
        from suffolk.build_index.on_ray.connection import connected

        return connected(self.ray)


@dataclass(frozen=True, kw_only=True)
class NamedOptions(RayOptions):
    """For commands that name a running cluster."""

    cluster: str | None = option(None, "name of the cluster (default: the only one)", metavar="NAME")

    def name(self) -> str:
        """The cluster's name. Raises NotFound if no cluster is up, and InvalidArgument if several are up."""
        from suffolk.serving.cluster.lifecycle import clusters

        if self.cluster is not None:
            return self.cluster
        if not (found := clusters()):
            raise NotFound("no cluster is up on this Ray; start one with 'suffolk cluster up'")
        if len(found) > 1:
            raise InvalidArgument(Field("cluster"), f": {', '.join(found)} are up; name one with --cluster")
        return found[0]


@dataclass(frozen=True, kw_only=True)
class ClusterUp(RayOptions):
    """Start the cluster in a YAML or TOML file on a running Ray, and wait until it takes requests.

    The command ends when all servers are ready; they go on. On an error or Ctrl-C, nothing is left
    running. A second 'up' with the same file finishes the start; with another one, it is refused.
    """

    EXAMPLES = """
suffolk cluster up cluster.yaml
suffolk cluster up cluster.yaml --ray 10.0.0.1:6379
suffolk cluster status

cluster.yaml:
  name: code
  folder: /var/lib/suffolk            # on every node: copies of datastores, logs
  stores:
    datastores:
      code: s3://bucket/code          # or a folder that every node has
    options: {residency: warm}        # further options of 'suffolk serve'
  workers:
    model: /models/qwen               # on every node
    count: 2
    gpus: 1
    options: {slots: 16}              # further options of 'suffolk worker'
  front: {host: 127.0.0.1, port: 8000}  # on another host, workers need access or insecure"""

    file: Path = argument(REQUIRED, "the cluster's settings", metavar="CLUSTER.yaml")

    def run(self) -> None:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        config = read_cluster(self.file)
        with self.connected():
            from suffolk.serving.cluster.lifecycle import up

            up(config, report)
            print(f"cluster {config.name} is up")


@dataclass(frozen=True, kw_only=True)
class ClusterStatus(NamedOptions):
    """Show the servers of a cluster: where they run, their versions, load, and the generation that each serves."""

    EXAMPLES = """
suffolk cluster status
suffolk cluster status --json"""

    json: bool = option(False, "print one JSON object, with the last events too")

    def run(self) -> int:
        with self.connected():
            from suffolk.serving.cluster.lifecycle import status

            found = status(self.name())
        print(json.dumps(found) if self.json else "\n".join(_lines(found)))
        return 0 if found["settled"] else 1


@dataclass(frozen=True, kw_only=True)
class ClusterUpdate(RayOptions):
    """Change a running cluster to the settings in a YAML or TOML file, without failed requests.

    Servers whose settings change are replaced one at a time: each finishes its requests, and the next one
    waits until it is ready again. If one does not start, the others keep their old settings.
    """

    EXAMPLES = """
suffolk cluster update cluster.yaml"""

    file: Path = argument(REQUIRED, "the cluster's new settings", metavar="CLUSTER.yaml")

    def run(self) -> None:
        config = read_cluster(self.file)
        with self.connected():
            from suffolk.serving.cluster.lifecycle import update

            update(config, report)
            print(f"cluster {config.name} is updated")


@dataclass(frozen=True, kw_only=True)
class ClusterScale(NamedOptions):
    """Change how many workers or store servers a running cluster has.

    What is stopped finishes its requests first. The next 'update' sets the numbers of its file again.
    """

    EXAMPLES = """
suffolk cluster scale --workers 4
suffolk cluster scale --stores 0                one on every node"""

    workers: Annotated[int, Within(0, 1024)] | None = option(None, "workers that shall run", metavar="N")
    stores: Annotated[int, Within(0, 64)] | None = option(None, "store servers; 0 is one on every node", metavar="N")

    def run(self) -> None:
        if self.workers is None and self.stores is None:
            raise InvalidArgument(Field("workers"), ": give --workers N, --stores N, or both")
        with self.connected():
            from suffolk.serving.cluster.lifecycle import scale

            name = self.name()
            scale(name, self.workers, self.stores, report)
            print(f"cluster {name} is scaled")


@dataclass(frozen=True, kw_only=True)
class ClusterDown(NamedOptions):
    """Stop a cluster: the front, then workers, which finish their requests, then store servers."""

    EXAMPLES = """
suffolk cluster down
suffolk cluster down --cluster code"""

    def run(self) -> None:
        with self.connected():
            from suffolk.serving.cluster.lifecycle import clusters, down

            if self.cluster is None and not clusters():
                print("no cluster is up")
                return
            name = self.name()
            stopped = down(name)
            print(f"cluster {name}: stopped {', '.join(stopped)}" if stopped else f"cluster {name} is not up")


COMMANDS = {
    "up": ClusterUp,
    "status": ClusterStatus,
    "update": ClusterUpdate,
    "scale": ClusterScale,
    "down": ClusterDown,
}


def _lines(found: dict[str, Any]) -> Iterator[str]:
    state = "all servers run" if found["settled"] else "not all wanted servers run, or a live store has no leader"
    yield f"cluster {found['name']}, {len(found['nodes'])} nodes: {state}"
    rows = [_COLUMNS, *map(_row, found["servers"])]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    for server in found["servers"]:
        if problem := server.get("problem") or (server["state"] != "ready" and server["error"]):
            yield f"{server['name']}: {problem}"


def _row(server: dict[str, Any]) -> tuple[str, ...]:
    if server["kind"] == "store":
        replicas, shard = server.get("replicas", {}), server.get("shard", "")
        serves = ", ".join(
            _copy(f"{name} {shard}".rstrip(), replicas[name]) if name in replicas else f"{name} generation {each}"
            for name, each in server.get("generations", {}).items()
        )
    else:
        serves = (
            f"{server['running']} of {server['slots']} slots, {server['waiting']} wait" if "slots" in server else ""
        )
    cells = [server["name"], server["state"], *(server.get(key, "") for key in ("node", "grpc", "http", "version"))]
    return (*cells, serves, str(server["restarts"]))


def _copy(name: str, replica: dict[str, Any]) -> str:
    return f"{name} leads" if replica["leads"] else f"{name} {replica['lag_seconds']:.1f} s behind"


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
    """Raise InvalidArgument if ``command`` lacks an option, or a value does not fit."""
    words = [*option_words(options)]
    settings = command_settings(command, words)
    merge(make_parser(f"suffolk {command}", "", "", settings), settings, command, words)
