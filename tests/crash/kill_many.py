"""Kills commands and processes that append to live stores, at random times and at fail points: ``make kills KILLS=300``."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.support.fork_server import ForkServer
from tests.support.killing import Change, make_changes, prove
from tests.support.live_kills import KilledStore
from tests.support.live_work import MODES

STORE_KILLS = 25
"""Kills of one live store; the next one begins empty."""
AGAIN = 0.3
"""The share of kills after which the command is restarted and killed again before the check."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chooser = random.Random(options.seed)
    phases: Counter[tuple[str, str]] = Counter()
    findings: list[str] = []
    folder = Path(tempfile.mkdtemp(prefix="suffolk-kills-"))
    with ForkServer("tests.support.live_work") as server:
        kill_live(folder, server, chooser, options.kills, phases, findings)
        changes = make_changes(folder, server)
        kills = attempts = 0
        while kills < options.kills:
            attempts += 1
            change, store = chooser.choice(changes), folder / f"attempt-{attempts}"
            change.prepare(store)
            try:
                killed = kill(change, store, server, chooser)
            except AssertionError as error:
                findings.append(f"{change.name}, kept in {store}: {error}")
                continue
            kills += killed[0]
            phases[change.name, killed[1]] += killed[0]
            shutil.rmtree(store)
    if not findings:
        shutil.rmtree(folder)
    for (name, phase), count in sorted(phases.items()):
        print(f"{name:20} {phase:22} {count:5}")
    for finding in findings:
        print(f"FOUND  {finding}")
    print(f"{kills} kills of commands, {options.kills} of live stores, {len(findings)} findings (seed {options.seed})")
    return 1 if findings else 0


def kill_live(
    folder: Path,
    server: ForkServer,
    chooser: random.Random,
    wanted: int,
    phases: Counter[tuple[str, str]],
    findings: list[str],
) -> None:
    """Kill processes that append to live stores ``wanted`` times; a store is killed up to STORE_KILLS times."""
    kills = stores = 0
    while kills < wanted:
        stores += 1
        mode, place = chooser.choice(list(MODES)), folder / f"live-{stores}"
        killed = KilledStore(server, place, mode)
        try:
            whole = killed.run(failpoint="none")
            points = sorted(whole.reached)
            for _ in range(min(STORE_KILLS, wanted - kills)):
                point = chooser.choice(points) if chooser.random() < 0.5 else None
                if point is not None:
                    time = chooser.randint(1, max(1, whole.reached[point] // 2))
                    ending = killed.run(failpoint=f"{point}@{time}")
                else:
                    ending = killed.run(kill_after=chooser.uniform(0, whole.seconds))
                if ending.code == -9:
                    kills += 1
                    phases[mode, point or "at a random time"] += 1
        except AssertionError as error:
            findings.append(f"{mode}, kept in {place}: {error}")
            kills += 1
            continue
        shutil.rmtree(place)


def kill(change: Change, store: Path, server: ForkServer, chooser: random.Random) -> tuple[int, str]:
    """Kill ``change`` once or more, and check the result. Returns the number of kills and the phase of the last kill."""
    hits = 0
    while True:
        ending = server.run(change.command(store), kill_after=chooser.uniform(0, 1.1 * change.seconds))
        hits += ending.code == -9
        running = (store / "build" / "journal.jsonl").exists()
        if ending.code == 0 or not running or chooser.random() > AGAIN:
            return hits, prove(change, store, ending, server)


if __name__ == "__main__":
    sys.exit(main())
