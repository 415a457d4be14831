"""Plots the speed-up over plain decoding by prompt set, from the results of one run."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from research.command import command_parser, run_command
from suffolk.benchmarks.plot import Panel, write_plot


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(args: argparse.Namespace) -> int:
    """Read the input and draw the plot; return the exit code."""
    run = json.loads(args.run.read_text())
    panel = Panel("Speed-up by prompt set", "plain decoding = 1", run["sets"], run["speed_up"])
    write_plot(args.output, run["what"], [panel])
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("plot_speed_by_set", __doc__, "docs/plots/speed_by_set.json docs/plots/speed_by_set.png")
    parser.add_argument("run", type=Path, help="JSON with 'what', 'sets', and the 'speed_up' of each drafter")
    parser.add_argument("output", type=Path, metavar="PNG", help="the plot")
    return parser


if __name__ == "__main__":
    sys.exit(main())
