"""Where the servers of a datastore are: shards, and the replicas of each. In a file, it can change while it is used."""

from __future__ import annotations

import os
from codecs import BOM_UTF8
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from urllib.parse import parse_qsl

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from suffolk.build_index.split import MAX_SHARDS
from suffolk.datastore.checks import check_keys
from suffolk.datastore.errors import InvalidArgument, NotFound
from suffolk.datastore.limits import MAX_NAME
from suffolk.serving.net.url import is_topology_file, parse_deadline, parse_url

MAX_REPLICAS = 64
"""Replicas of one shard."""
_STRICT = ConfigDict(extra="forbid", frozen=True)
_OPTIONS = ("zone", "deadline_ms")


class ReplicaAddress(BaseModel):
    """One server. ``url``: grpc://HOST:PORT/NAME, grpcs:// or grpc+unix://. ``zone``: where it runs; empty: unknown."""

    model_config = _STRICT
    url: str
    zone: str = Field("", max_length=MAX_NAME)


class Shard(BaseModel):
    """Servers with the same text: all of the datastore, or a part that no other shard has."""

    model_config = _STRICT
    replicas: tuple[ReplicaAddress, ...] = Field(min_length=1, max_length=MAX_REPLICAS)


class Topology(BaseModel):
    """The shards of a datastore. Its JSON form is the content of a topology file."""

    model_config = _STRICT
    shards: tuple[Shard, ...] = Field(min_length=1, max_length=MAX_SHARDS)

    @property
    def addresses(self) -> list[ReplicaAddress]:
        """All servers, shard by shard."""
        return [replica for shard in self.shards for replica in shard.replicas]


def check_topology(topology: Topology, source: str) -> Topology:
    """``topology``. Raises InvalidArgument if a URL is malformed, occurs twice, or has another NAME than the first."""
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
    return check_topology(_validated({"shards": [{"replicas": replicas} for replicas in shards]}, url), url)


def read_topology(path: Path) -> Topology:
    """The topology in a file.

    Raises:
        NotFound: it cannot be read.
        InvalidArgument: it is no topology; see ``check_topology``.
    """
    try:
        content = path.read_bytes().removeprefix(BOM_UTF8)
    except OSError as error:
        raise NotFound(f"topology {path}: cannot be read ({error.strerror}); name a JSON file with 'shards'") from None
    return check_topology(_validated(content, f"topology {path}"), f"topology {path}")


def write_topology(topology: Topology, path: Path) -> None:
    """Replace the file ``path`` at once, so that a reader never sees half of it. Raises InvalidArgument as ``check_topology``."""
    check_topology(topology, f"topology {path}")
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(topology.model_dump_json(indent=2, exclude_defaults=True) + "\n", encoding="utf-8")
    temporary.replace(path)


def _validated(content: bytes | dict[str, object], source: str) -> Topology:
    try:
        if isinstance(content, bytes):
            return Topology.model_validate_json(content)
        return Topology.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise InvalidArgument(
            f"{source}: {place}: {first['msg']}; the form is "
            '{"shards": [{"replicas": [{"url": "grpc://HOST:PORT/NAME", "zone": "ZONE"}]}]}'
        ) from None


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

    With one shard more, one group in ``shards + 1`` gets another shard: the new one.
    """
    return max(range(shards), key=lambda shard: _weight(f"{tenant}\0{group}\0{shard}"))


def _weight(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
