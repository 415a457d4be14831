"""Choose which copy of a live datastore leads: at the first start, and when the leader is gone.

Name all copies, also those that do not run. The copy with the most changes leads in a new epoch. An
earlier leader takes no changes any more; when it runs again, it follows. So nothing that was
acknowledged is lost. Too few answers: nothing is changed, and the exit code is 2. The command needs
the role 'admin'. --dry-run shows the copies only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from suffolk.cli.options import setting
from suffolk.cli.options.setting import REQUIRED, argument, option
from suffolk.datastore.errors import SuffolkError
from suffolk.serving.replication.promote import promote, read_replicas
from suffolk.serving.replication.replica import ReplicaStatus

EXAMPLES = """
suffolk promote grpc://10.0.0.1:7700/chat grpc://10.0.0.2:7700/chat
suffolk promote --dry-run grpc://10.0.0.1:7700/chat grpc://10.0.0.2:7700/chat"""


@dataclass(frozen=True, kw_only=True)
class Options(setting.Options):
    replicas: tuple[str, ...] = argument(
        REQUIRED, "grpc://HOST:PORT/NAME of each copy of the datastore, ?token_file=FILE for a token", metavar="URL"
    )
    dry_run: bool = option(False, "print what each copy has, and change nothing")
    json: bool = option(False, "print one JSON object")


def run(options: Options) -> int:
    if options.dry_run:
        found, leader, epoch = read_replicas(options.replicas), None, None
    else:
        done = promote(options.replicas)
        found, leader, epoch = dict(done.found), done.leader, done.epoch
    if options.json:
        shown = {
            url: {"error": str(each)} if isinstance(each, SuffolkError) else asdict(each) for url, each in found.items()
        }
        print(json.dumps({"leader": leader, "epoch": epoch, "replicas": shown}))
        return 0
    print("\n".join(_lines(found)))
    if leader is not None:
        print(f"{leader} leads in epoch {epoch}")
    return 0


def _lines(found: Mapping[str, ReplicaStatus | SuffolkError]) -> list[str]:
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
