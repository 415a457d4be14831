"""Plots the speed-up over plain decoding by prompt set, from the tokens per second of one run."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from research.command import command_parser, run_command
from suffolk.benchmarks.plot import Panel, write_plot

PLAIN = "plain"


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(args: argparse.Namespace) -> int:
    """Read the input and draw the plot; return the exit code."""
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
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("plot_speed_by_set", __doc__, "docs/plots/speed_by_set.json docs/plots/speed_by_set.png")
    parser.add_argument("run", type=Path, help="JSON with 'what', 'sets', and 'tokens_per_second' of each drafter")
    parser.add_argument("output", type=Path, metavar="PNG", help="the plot")
    return parser


if __name__ == "__main__":
    sys.exit(main())
