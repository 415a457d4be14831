"""The topology of a datastore: its shards, and the servers of each. A topology file may change while it is used."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Annotated
from urllib.parse import parse_qsl

from suffolk.build_index.split import MAX_SHARDS
from suffolk.datastore.arguments import check_size
from suffolk.datastore.checks import check_keys
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.limits import MAX_NAME
from suffolk.datastore.settings import Checked, Within, check_fields, from_json, read_object
from suffolk.serving.net.url import is_topology_file, parse_deadline, parse_url

MAX_REPLICAS = 64
"""Replicas of one shard."""
_FORM = 'the form is {"shards": [{"replicas": [{"url": "grpc://HOST:PORT/NAME", "zone": "ZONE"}]}]}'
_OPTIONS = ("zone", "deadline_ms")


@dataclass(frozen=True, slots=True)
class ReplicaAddress:
    """One server. ``url``: grpc://HOST:PORT/NAME, grpcs:// or grpc+unix://. ``zone``: where it runs; empty: unknown."""

    url: str
    zone: str = ""

    def __post_init__(self) -> None:
        check_fields(self)
        check_size("zone", len(self.zone), MAX_NAME, "characters")


@dataclass(frozen=True, slots=True)
class Shard(Checked):
    """Servers with the same text: all of the datastore, or a part that no other shard has."""

    replicas: Annotated[tuple[ReplicaAddress, ...], Within(1, MAX_REPLICAS)]


@dataclass(frozen=True, slots=True)
class Topology(Checked):
    """The shards of a datastore. Its JSON form is the content of a topology file."""

    shards: Annotated[tuple[Shard, ...], Within(1, MAX_SHARDS)]

    @property
    def addresses(self) -> list[ReplicaAddress]:
        """All servers, shard by shard."""
        return [replica for shard in self.shards for replica in shard.replicas]


def check_topology(topology: Topology, source: str) -> Topology:
    """``topology``. Raises InvalidArgument if a URL is malformed, occurs twice, or has another NAME than the first URL."""
    urls = [address.url for address in topology.addresses]
    names = [parse_url(url).name for url in urls]
    for url, name in zip(urls, names, strict=True):
        if urls.count(url) > 1:
            raise InvalidArgument(f"{source}: {url} is named twice; name each server once")
        if name != names[0]:
            raise InvalidArgument(
                f"{source}: {url} names datastore {name!r}, {urls[0]} names {names[0]!r}; serve both under one name "
                "('suffolk serve NAME=STORE')"
            )
    return topology


def parse_urls(url: str) -> Topology:
    """The topology of ``grpc://HOST:PORT,HOST:PORT+HOST:PORT/NAME``: commas between replicas, plus signs between shards.

    Raises InvalidArgument: see ``check_topology``; or there are too many servers.
    """
    scheme, _, rest = url.partition("://")
    ends = [place for mark in "/?#" if (place := rest.find(mark)) >= 0]
    hosts, tail = rest[: min(ends, default=len(rest))], rest[min(ends, default=len(rest)) :]
    shards = [[{"url": f"{scheme}://{host}{tail}"} for host in shard.split(",")] for shard in hosts.split("+")]
    return check_topology(from_json(Topology, {"shards": [{"replicas": each} for each in shards]}, url), url)


def read_topology(path: Path) -> Topology:
    """The topology in a file.

    Raises:
        NotFound, Corruption: it cannot be read, or is no JSON object.
        InvalidArgument: it is no topology; see ``check_topology``.
    """
    what = f"topology {path}"
    return check_topology(from_json(Topology, read_object(path, what, _FORM), what), what)


def write_topology(topology: Topology, path: Path) -> None:
    """Replace the file ``path`` atomically: a reader never sees half of it. Raises the errors of ``check_topology``."""
    check_topology(topology, f"topology {path}")
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(asdict(topology), indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed address.

    Attributes:
        topology: the servers.
        file: the file that lists them; None for a URL.
        zone: the caller's zone; empty: none.
        deadline: seconds that a draft or lookup may take; None if the address does not set it.
    """

    topology: Topology
    file: Path | None = None
    zone: str = ""
    deadline: float | None = None


def parse_address(name: str) -> Address:
    """Parse an address with several servers.

    Raises:
        InvalidArgument: it is malformed; see ``check_topology``.
        NotFound: the topology file cannot be read.
    """
    if not is_topology_file(name):
        topology = parse_urls(name)
        return Address(topology, deadline=parse_url(topology.addresses[0].url).deadline)
    path, _, query = name.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    check_keys(name, options, _OPTIONS)
    topology = read_topology(Path(path))
    deadline = parse_deadline(name, options.get("deadline_ms"))
    return Address(topology, Path(path), options.get("zone", ""), deadline)


def shard_of(tenant: str, group: str, shards: int) -> int:
    """The shard of ``group``, 0 to ``shards - 1``, by rendezvous hashing (Thaler and Ravishankar 1998).

    If a shard is added, one group in ``shards + 1`` moves to the new shard. All others stay.
    """
    return max(range(shards), key=lambda shard: _weight(f"{tenant}\0{group}\0{shard}"))


def _weight(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
