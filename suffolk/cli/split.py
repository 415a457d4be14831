"""Split a datastore into shards for several servers.

OUT/shard-0, OUT/shard-1, ... are datastores with some of its segments each. Segment files are linked, so OUT must be on
the same file system, and it takes no space. Serve each shard under one name; the address
grpc://HOST:PORT+HOST:PORT/NAME then answers as the whole datastore.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from suffolk.build_index.report import count, megabytes
from suffolk.build_index.split import split
from suffolk.cli.options import setting
from suffolk.datastore.settings import REQUIRED, argument, option

EXAMPLES = """
suffolk split STORE shards/ --shards 2
suffolk serve code=shards/shard-0                 on the first machine
suffolk serve code=shards/shard-1                 on the second machine"""


@dataclass(frozen=True, kw_only=True)
class Options(setting.Options):
    store: Path = argument(REQUIRED, "a datastore's folder", metavar="STORE")
    output: Path = argument(REQUIRED, "a new folder for the shards", metavar="OUT")
    shards: int = option(2, "number of shards; the datastore needs as many segments")
    json: bool = option(False, "print one JSON object")


def run(options: Options) -> int:
    reports = split(options.store, options.output, options.shards)
    if options.json:
        print(json.dumps({"shards": [asdict(report) for report in reports]}))
        return 0
    for report in reports:
        print(
            f"{report.path}: {count(report.segments, 'segment')}, {count(report.documents, 'document')}, "
            f"{count(report.tokens, 'token')}, {megabytes(report.bytes)}"
        )
    return 0
