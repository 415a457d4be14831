"""The addresses of datastores that several servers serve.

    grpc://a:7700,b:7700/code                 two replicas
    grpc://a:7700,b:7700+c:7700,d:7700/code   two shards of two replicas each
    topology.json                             a file that lists shards, replicas and zones
    topology.json?zone=eu-1a&deadline_ms=10   the same, for a caller in a zone

The options of a URL, such as ``?deadline_ms=10`` or ``?token_file=FILE``, hold for all of its servers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl

from suffolk.datastore.checks import check_keys
from suffolk.serving.clients.fanout.topology import Topology, parse_urls, read_topology
from suffolk.serving.net.url import is_topology_file, parse_deadline, parse_url

_OPTIONS = ("zone", "deadline_ms")


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
