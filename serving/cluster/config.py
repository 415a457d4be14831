"""The settings of a cluster, from a YAML or TOML file. Imports no Ray: the settings are checked before Ray starts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

import yaml

from suffolk.datastore.checks import check_keys
from suffolk.datastore.errors import Field, InvalidArgument, NotFound
from suffolk.datastore.file_systems import is_storage_url
from suffolk.datastore.files import read_bounded
from suffolk.datastore.settings import Within, check_fields, from_json, parse_toml
from suffolk.serving.clients.fanout.topology import MAX_REPLICAS
from suffolk.serving.cluster.server_client import ServerClient
from suffolk.serving.cluster.store_config import (
    LIVE_OPTIONS,
    LiveConfig,
    Source,
    check_live,
    check_published,
    check_remember,
)
from suffolk.serving.net.config import HostRules, ServerConfig
from suffolk.serving.net.endpoint import Endpoint

Count = Annotated[int, Within(0, 1024)]
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_MANAGED = ("listen", "http", "stores", "datastore", "model", "cache", "config", "assignments", "drain")
"""Options of servers that the cluster sets itself."""


@dataclass(frozen=True)
class StoresConfig:
    """Servers of datastores, at most one on a node.

    Attributes:
        datastores: name -> folder or URL, or one for each shard. A folder must exist on every node. A datastore at a
            URL is copied to the nodes.
        count: servers; 0 for one on every node, up to MAX_REPLICAS.
        port: gRPC port on each node; 0 takes a free one. Servers of shards take every second port after ``port``.
        options: further options of ``suffolk serve``.
        client: files with which workers call the store servers.
        copies: servers of each shard of a published datastore with several shards. Fewer if there are too few nodes.
        live: name -> datastore that clients append to.
        register: URL, in storage or etcd, of the register, which records which copy of a live store leads. See ``register_url``.
        copies_at: node -> HOST:PORT of each server that has copies of live stores with one shard. The cluster sets it
            (``copies.py``).
        shards_at: for datastores with several shards: shard -> node -> HOST:PORT of its server. The cluster sets it
            (``copies.py``).
    """

    datastores: Mapping[str, Source] = field(default_factory=dict)
    count: Annotated[int, Within(0, MAX_REPLICAS)] = 0
    port: Annotated[int, Within(0, 65_000)] = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    client: ServerClient = field(default_factory=ServerClient)
    copies: Annotated[int, Within(1, 9)] = 2
    live: Mapping[str, LiveConfig] = field(default_factory=dict)
    register: str = ""
    copies_at: Mapping[str, str] = field(default_factory=dict, compare=False)
    shards_at: Mapping[str, Mapping[str, str]] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        check_fields(self, " of stores")
        object.__setattr__(self, "options", _checked_options(self.options, "stores", LIVE_OPTIONS))
        self.client.check("stores", self.options)
        self.client.require("stores", self.options)
        if not isinstance(self.datastores, Mapping) or not (self.datastores or self.live):
            raise InvalidArgument(
                f"datastores of stores is {self.datastores!r}; name at least one as NAME: FOLDER or NAME: URL"
            )
        check_published(self.datastores, self.port)
        check_live(self.live, self.datastores, self.port)

    @property
    def whole(self) -> Mapping[str, str]:
        """Name -> folder or URL of the published datastores that each store server has."""
        return {name: each for name, each in self.datastores.items() if isinstance(each, str)}

    @property
    def whole_live(self) -> Mapping[str, LiveConfig]:
        """The live stores that each store server has a copy of."""
        return {name: each for name, each in self.live.items() if each.shards == 1}

    @property
    def names(self) -> list[str]:
        """The names of the datastores that each store server has."""
        return [*self.whole, *self.whole_live]

    @property
    def sharded(self) -> list[str]:
        """The names of the datastores with several shards, which have servers of their own."""
        return [name for name in (*self.datastores, *self.live) if name not in self.names]

    @property
    def register_url(self) -> str:
        """The URL in ``register``. If empty, a folder beside the first datastore in storage; empty without such a
        datastore."""
        sources = [
            each for source in self.datastores.values() for each in ([source] if isinstance(source, str) else source)
        ]
        folders = (url.rstrip("/").rpartition("/")[0] for url in sources if is_storage_url(url))
        return self.register or next((f"{folder}/register" for folder in folders if folder[-1:] not in ("", "/")), "")

    def url(self, address: str, name: str = "") -> str:
        """The URL of datastore ``name``, or of the only one, on the store server at HOST:PORT."""
        return self.client.url(address, name, self.options)


@dataclass(frozen=True)
class WorkersConfig:
    """Decoding workers.

    Attributes:
        model: folder of the model, on every node.
        count: workers.
        port: gRPC port of worker 0; its HTTP port is one higher, and worker i adds 2 * i. 0 takes free ports.
        cpus, gpus: what Ray reserves for each worker.
        options: further options of ``suffolk worker``.
        client: files with which the front and ``status`` call the workers. The front sends its caller's token, never the token in
            these files.
    """

    model: str
    count: Count = 1
    port: Annotated[int, Within(0, 60_000)] = 0
    cpus: Annotated[float, Within(0, 1024)] = 1.0
    gpus: Annotated[float, Within(0, 64)] = 0.0
    options: Mapping[str, Any] = field(default_factory=dict)
    client: ServerClient = field(default_factory=ServerClient)

    def __post_init__(self) -> None:
        check_fields(self, " of workers")
        object.__setattr__(self, "options", _checked_options(self.options, "workers"))
        self.client.check("workers", self.options)

    @property
    def https(self) -> ServerClient | None:
        """The client with which the front calls workers over HTTPS; None for plain HTTP."""
        return self.client if self.options.get("tls_cert") else None

    def url(self, address: str) -> str:
        """The URL of the worker at HOST:PORT."""
        return self.client.url(address, "", self.options)


@dataclass(frozen=True)
class FrontConfig:
    """OpenAI's API in front of all workers, as a Ray Serve deployment on the head node.

    Attributes:
        host, port: address. If other machines can reach the address, the workers need ``access`` or ``insecure``.
        replicas: processes that forward requests.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Within(1, 65_535)] = 8000
    replicas: Annotated[int, Within(1, 64)] = 1

    def __post_init__(self) -> None:
        check_fields(self, " of front")

    @property
    def endpoint(self) -> Endpoint:
        """The address."""
        return Endpoint(self.host, self.port)


@dataclass(frozen=True)
class ClusterConfig:
    """A cluster.

    Attributes:
        name: unique among the clusters on one Ray: 1 to 40 characters of a-z, 0-9 and '-'.
        folder: on every node, for copies of datastores, logs and the topology file. Each node uses the part with its name.
        grace: seconds that running requests get when a worker is replaced or stopped.
        start_seconds: seconds in which a server must start. They include copying its datastores or loading its model.
        front: None for no HTTP front.
    """

    name: str
    folder: str
    stores: StoresConfig
    workers: WorkersConfig
    front: FrontConfig | None = None
    grace: Annotated[float, Within(0, 600)] = 30.0
    start_seconds: Annotated[float, Within(1, 86_400)] = 600.0

    def __post_init__(self) -> None:
        check_fields(self)
        if not _NAME.fullmatch(self.name):
            raise InvalidArgument(Field("name"), f" is {self.name!r}; it must be 1 to 40 of a-z, 0-9 and '-'")
        if not Path(self.folder).is_absolute():
            raise InvalidArgument(
                Field("folder"), f" is {self.folder!r}; it must be an absolute path, the same on every node"
            )
        check_remember(self.workers.options, self.stores.live)
        if self.front is not None:
            front_rules(self.front.endpoint, self.workers.options)
            if self.workers.options.get("tls_client_ca"):
                raise InvalidArgument(
                    "options of workers has ",
                    Field("tls_client_ca"),
                    ", and a front, whose certificate would stand for all of its callers; "
                    "leave one of the two out, or use access",
                )


def read_config(path: str | Path) -> ClusterConfig:
    """The cluster in a file: TOML if its name ends in .toml, else YAML.

    Raises:
        NotFound: the file cannot be read.
        InvalidArgument: it is malformed, a key is unknown or missing, or a value is out of its bounds.
    """
    try:
        content = read_bounded(path)
    except OSError as error:
        raise NotFound(f"{path}: cannot be read ({error.strerror}); name the cluster's YAML or TOML file") from error
    form, parse = ("TOML", parse_toml) if Path(path).suffix == ".toml" else ("YAML", yaml.safe_load)
    try:
        values = parse(content.decode("utf-8-sig"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: malformed bytes or values
        raise InvalidArgument(f"{path}: no {form} ({error}); correct it") from error
    return config_from({} if values is None else values, str(path))  # None: the file is empty


def config_from(values: object, what: str) -> ClusterConfig:
    """The cluster that ``values`` describe; ``what`` names them in messages. Raises InvalidArgument."""
    if isinstance(values, Mapping) and isinstance(stores := values.get("stores"), Mapping):
        # without ``copies_at`` and ``shards_at``, which the cluster sets
        check_keys(f"{what}: stores", stores, [each.name for each in fields(StoresConfig) if each.compare])
    return from_json(ClusterConfig, values, what)


def _checked_options(options: Mapping[str, Any], of: str, more: Sequence[str] = ()) -> dict[str, Any]:
    """``options`` with "_" for "-" in the names. ``more``: further options that the cluster sets. Raises InvalidArgument."""
    if not isinstance(options, Mapping):
        raise InvalidArgument(f"options of {of} is {options!r}; it must be an object of options and their values")
    for name, value in options.items():
        if str(name).replace("-", "_") in (*_MANAGED, *more):
            raise InvalidArgument(f"options of {of} has {name!r}, which the cluster sets; leave it out")
        values = value if isinstance(value, list) else [value]
        if not all(isinstance(each, bool | int | float | str) for each in values):
            raise InvalidArgument(f"options of {of}: {name} is {value!r}; it must be a value or a list of values")
    return {str(name).replace("-", "_"): value for name, value in options.items()}


def option_words(options: Mapping[str, Any]) -> Iterator[str]:
    """``options`` as words of the command ``suffolk serve`` or ``suffolk worker``."""
    for name, value in options.items():
        for each in value if isinstance(value, list) else [value]:
            text = str(each).lower() if isinstance(each, bool) else str(each)
            yield f"--set={name}={text}"


def front_rules(front: Endpoint, options: Mapping[str, Any]) -> HostRules:
    """Which requests of browsers the front answers. ``options``: the workers' options.

    Raises:
        InvalidArgument: other machines can reach the front, and neither ``access`` nor ``insecure`` is among the options; or
            a host in ``allowed_host`` is malformed.
    """
    access, insecure = options.get("access"), str(options.get("insecure")).lower() == "true"
    if not (front.is_private() or access or insecure):
        raise InvalidArgument(
            f"host of front: {front} would answer every machine that can reach it; give access or insecure in options of "
            "workers, or use 127.0.0.1"
        )
    loopback = Endpoint("127.0.0.1")
    server = ServerConfig(
        (loopback,),
        http=front,
        access=Path(str(access)) if access else None,
        insecure=True,  # decided above: the front has no TLS
        allowed_hosts=_texts(options.get("allowed_host")),
    )
    return server.host_rules(_texts(options.get("cors_origin")))


def _texts(value: Any) -> tuple[str, ...]:
    """The values of an option that may be given several times."""
    if value is None:
        return ()
    return tuple(str(each) for each in value) if isinstance(value, list) else (str(value),)
