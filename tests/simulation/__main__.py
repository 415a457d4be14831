"""Simulated histories of a replicated store: ``python -m tests.simulation --seeds 2000``. A failing seed replays exactly."""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter

from tests.simulation.simulation import simulate


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="how many (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first one (default: %(default)s)")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    faults: Counter[str] = Counter()
    acknowledged = findings = 0
    for seed in range(options.first, options.first + options.seeds):
        try:
            done = simulate(seed)
        except AssertionError as error:
            findings += 1
            print(f"FOUND  seed {seed}: {error}", flush=True)
        else:
            faults += done.faults
            acknowledged += done.history.acknowledged
    print(f"{options.seeds} seeds, {faults.total()} faults, {acknowledged} changes acknowledged, {findings} findings")
    print(", ".join(f"{kind} {count}" for kind, count in sorted(faults.items())))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
