"""Let a copy of a live datastore lead, or show what each copy is.

When the leader is gone, a copy that has all its changes leads by itself. This command moves the lead
to the copy at URL, which must be known to be in sync. If too many copies are gone for good,
--accept-loss lets another copy lead; the output then says what may be lost. With --dry-run, the
command shows the copies at any number of URLs and changes nothing; the exit code is 2 if one of them
does not answer. The command needs the role 'admin', with --dry-run 'read'.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass

from suffolk.cli.options import setting
from suffolk.datastore.errors import InvalidArgument, SuffolkError
from suffolk.datastore.settings import REQUIRED, argument, option
from suffolk.serving.clients.fanout.topology import parse_address
from suffolk.serving.net.url import names_several
from suffolk.serving.store.replication.peer import Found, Peer, read_replicas

EXAMPLES = """
suffolk promote grpc://10.0.0.2:7700/chat                            this copy leads from now on
suffolk promote --dry-run grpc://10.0.0.1:7700,10.0.0.2:7700/chat    what each copy is
suffolk promote --dry-run topology.json                              all shards of the file
suffolk promote --accept-loss grpc://10.0.0.2:7700/chat              the others are gone for good"""


@dataclass(frozen=True, kw_only=True)
class Options(setting.Options):
    replicas: tuple[str, ...] = argument(
        REQUIRED,
        "grpc://HOST:PORT/NAME of the copy, ?token_file=FILE for a token. With --dry-run also several, an address of several "
        "servers, or a topology file",
        metavar="URL",
    )
    dry_run: bool = option(False, "print what each copy is, and change nothing")
    accept_loss: bool = option(
        False, "let the copy lead even if others may have acknowledged changes that it lacks", excludes=("dry_run",)
    )
    json: bool = option(False, "print JSON objects")


def run(options: Options) -> int:
    if options.dry_run:
        shards = [read_replicas(urls) for urls in _shards(options.replicas)]
        for found in shards:
            _print_found(found, options.json)
        return 2 if any(isinstance(each, SuffolkError) for found in shards for each in found.values()) else 0
    if len(options.replicas) != 1 or names_several(options.replicas[0]):
        raise InvalidArgument("name the one copy that is to lead; --dry-run shows what the copies are")
    [url] = options.replicas
    with closing(Peer(url)) as peer:
        lost = peer.lead(options.accept_loss)
    if options.json:
        print(json.dumps({"leader": url, "lost": lost}), flush=True)
    else:
        print(f"{url} leads{lost and '; '}{lost}", flush=True)
    return 0


def _shards(texts: Sequence[str]) -> list[tuple[str, ...]]:
    """The URLs of the copies of each shard."""
    if odd := next((text for text in texts if "://" not in text and not names_several(text)), ""):
        raise InvalidArgument(
            f"{odd}: neither a URL nor a topology file; give grpc://HOST:PORT/NAME, or a file whose name ends with .json"
        )
    if not any(names_several(text) for text in texts):
        return [tuple(texts)]
    topologies = [parse_address(text).topology for text in texts]
    return [tuple(replica.url for replica in shard.replicas) for topology in topologies for shard in topology.shards]


def _print_found(found: Found, as_json: bool) -> None:
    if as_json:
        shown = {
            url: {"error": str(each)} if isinstance(each, SuffolkError) else asdict(each) for url, each in found.items()
        }
        print(json.dumps({"replicas": shown}), flush=True)
        return
    width = max(map(len, found))
    for url, each in found.items():
        if isinstance(each, SuffolkError):
            print(f"{url:<{width}}  no answer: {each}", flush=True)
            continue
        part = "leads" if each.leads else "in sync" if each.in_sync else "not known to be in sync"
        print(
            f"{url:<{width}}  {part}, epoch {each.epoch}, change {each.position}, digest {each.digest:016x}", flush=True
        )
