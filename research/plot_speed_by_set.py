"""Draws the speed-up over plain decoding by prompt set, from the tokens per second of one run.

python -m research.plot_speed_by_set docs/plots/speed_by_set.json docs/plots/speed_by_set.png
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from suffolk.benchmarks.plot import Panel, write_plot

PLAIN = "plain"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="JSON with 'what', 'sets', and 'tokens_per_second' of each drafter")
    parser.add_argument("output", type=Path, metavar="PNG", help="the plot")
    args = parser.parse_args()
    run = json.loads(args.run.read_text())
    rates = run["tokens_per_second"]
    speed_ups = {
        drafter: [value / plain for value, plain in zip(values, rates[PLAIN], strict=True)]
        for drafter, values in rates.items()
        if drafter != PLAIN
    }
    write_plot(
        args.output, run["what"], [Panel("Speed-up by prompt set", "plain decoding = 1", run["sets"], speed_ups)]
    )


if __name__ == "__main__":
    main()
