"""Choose which copy of a live datastore leads: at the first start, and when the leader is gone.

Name all copies, also those that do not run: by their URLs, or by one address of several servers. The
copy with the most changes leads in a new epoch. An earlier leader takes no changes any more; when it
runs again, it follows. So nothing that was acknowledged is lost. Too few answers: nothing is changed,
and the exit code is 2. The command needs the role 'admin'.

With --watch, the command goes on, and promotes when no leader has answered for some seconds. It reads
a topology file again each time. Several such commands may run at a time, for example one beside each
server.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

from suffolk.cli.options import setting
from suffolk.cli.options.setting import REQUIRED, argument, option
from suffolk.datastore.errors import SuffolkError
from suffolk.serving.engine.checked_fields import Within
from suffolk.serving.fanout.address import parse_address
from suffolk.serving.replication.leader_watch import LOOK_SECONDS, LeaderWatch
from suffolk.serving.replication.promote import Promotion, promote, read_replicas
from suffolk.serving.replication.replica import ReplicaStatus
from suffolk.serving.transport.url import names_several

EXAMPLES = """
suffolk promote grpc://10.0.0.1:7700/chat grpc://10.0.0.2:7700/chat
suffolk promote topology.json                          all shards of the file
suffolk promote --dry-run grpc://10.0.0.1:7700,10.0.0.2:7700/chat
suffolk promote --watch 3 topology.json                promote whenever a leader is gone for 3 seconds"""
Found = Mapping[str, ReplicaStatus | SuffolkError]


@dataclass(frozen=True, kw_only=True)
class Options(setting.Options):
    replicas: tuple[str, ...] = argument(
        REQUIRED,
        "grpc://HOST:PORT/NAME of each copy, ?token_file=FILE for a token; or an address of several servers, or a topology file",
        metavar="URL",
    )
    dry_run: bool = option(False, "print what each copy has, and change nothing")
    watch: Annotated[float, Within(1, 3600)] | None = option(
        None,
        "go on, and promote when no leader has answered for so many seconds",
        metavar="SECONDS",
        excludes=("dry_run",),
    )
    json: bool = option(False, "print one JSON object for each set of copies")


def run(options: Options) -> int:
    shards = _shards(options.replicas)
    if options.watch is not None:
        _watch(options.replicas, options.watch, options.json)
    for urls in shards:
        if options.dry_run:
            _print(read_replicas(urls), None, options.json)
        else:
            done = promote(urls)
            _print(done.found, done, options.json)
    return 0


def _shards(texts: Sequence[str]) -> list[tuple[str, ...]]:
    """The URLs of the copies of each shard."""
    if not any(names_several(text) for text in texts):
        return [tuple(texts)]
    topologies = [parse_address(text).topology for text in texts]
    return [tuple(replica.url for replica in shard.replicas) for topology in topologies for shard in topology.shards]


def _watch(replicas: Sequence[str], seconds: float, as_json: bool) -> None:
    """Promote whenever a leader is gone, until a signal ends the process."""
    watch = LeaderWatch(seconds)
    while True:
        try:
            shards = _shards(replicas)
        except SuffolkError as error:
            _report(error)
            shards = []  # an earlier list may lack copies that have acknowledged changes
        for outcome in watch.look(shards):
            if isinstance(outcome, Promotion):
                _print(outcome.found, outcome, as_json)
            else:
                _report(outcome)
        time.sleep(LOOK_SECONDS)


def _report(error: SuffolkError) -> None:
    print(f"suffolk: {error}", file=sys.stderr, flush=True)


def _print(found: Found, done: Promotion | None, as_json: bool) -> None:
    if as_json:
        shown = {
            url: {"error": str(each)} if isinstance(each, SuffolkError) else asdict(each) for url, each in found.items()
        }
        chosen = {"leader": done.leader, "epoch": done.epoch} if done else {"leader": None, "epoch": None}
        print(json.dumps(chosen | {"replicas": shown}), flush=True)
        return
    print("\n".join(_lines(found)))
    if done is not None:
        print(f"{done.leader} leads in epoch {done.epoch}", flush=True)


def _lines(found: Found) -> list[str]:
    width = max(map(len, found))
    lines = []
    for url, each in found.items():
        if isinstance(each, SuffolkError):
            lines.append(f"{url:<{width}}  no answer: {each}")
        else:
            part = "leads" if each.leads else "does not lead"
            lines.append(
                f"{url:<{width}}  {part} in epoch {each.epoch}, has epoch {each.data_epoch} up to change {each.position}"
            )
    return lines
