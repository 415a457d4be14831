"""Copy a datastore while it is served and appended to.

The copy holds the published generation, and every append that was acknowledged before the command began.
It appears at the end, whole and on disk. To restore it, serve the copy, or move it to the old place while
no process uses that. 'suffolk verify' checks it. Exit code 0: copied.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from suffolk.build_index.report import count, megabytes
from suffolk.cli.options import setting
from suffolk.datastore.settings import REQUIRED, Within, argument, option
from suffolk.serving.store.live_store.snapshot import LOCK_SECONDS, snapshot

EXAMPLES = """
suffolk snapshot STORE /backup/store-monday       a full copy
suffolk snapshot STORE STORE.copy --link          at once, on the same disk: segment files are shared
suffolk serve /backup/store-monday                restore: serve the copy"""


@dataclass(frozen=True, kw_only=True)
class Options(setting.Options):
    store: Path = argument(REQUIRED, "a datastore's folder", metavar="STORE")
    output: Path = argument(REQUIRED, "a new folder for the copy", metavar="OUT")
    link: bool = option(False, "link segment files instead of copying them; OUT must be on the same file system")
    wait: Annotated[float, Within(0)] = option(
        LOCK_SECONDS, "seconds to wait while another process publishes", metavar="SECONDS"
    )
    json: bool = option(False, "print one JSON object")


def run(options: Options) -> int:
    report = snapshot(options.store, options.output, options.link, options.wait)
    if options.json:
        print(json.dumps(asdict(report)))
    else:
        print(
            f"copied {report.store} (generation {report.generation}) to {report.output}: {count(report.files, 'file')}, "
            f"{megabytes(report.bytes)}, of these {megabytes(report.log_bytes)} not published yet, {report.seconds:.1f} s"
        )
    return 0
