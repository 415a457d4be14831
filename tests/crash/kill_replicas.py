"""Kills servers with copies of a live store at random times: ``python -m tests.crash.kill_replicas --kills 100``."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tests.support.replica_kills import kill_servers

ROUND = 10
"""Kills of one set of servers; the next one begins empty."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    findings = done = acknowledged = 0
    while done < options.kills:
        folder = Path(tempfile.mkdtemp(prefix="suffolk-replicas-"))
        seed = options.seed * 1000 + done
        try:
            report = kill_servers(folder, min(ROUND, options.kills - done), seed)
        except AssertionError as error:
            findings += 1
            print(f"FOUND  seed {seed}, kept in {folder}: {error}", flush=True)
        else:
            shutil.rmtree(folder)
            acknowledged += report.acknowledged
            print(
                f"seed {seed}: killed {dict(report.kills)}, {report.acknowledged} changes acknowledged, {report.unknown} unknown, "
                f"longest wait {report.longest_wait:.1f} s",
                flush=True,
            )
        done += ROUND
    print(f"{done} kills, {acknowledged} changes acknowledged, {findings} findings (seed {options.seed})")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
