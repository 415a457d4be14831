"""What every measurement ends with: tables on the terminal, a JSON file and a plot."""

from __future__ import annotations

import argparse

from benchmarks.plot import Panel, write_plot
from benchmarks.report import Report, write_report


def finish(args: argparse.Namespace, report: Report, lines: list[str], panels: list[Panel]) -> int:
    """Print the tables and write both files; returns the exit code."""
    print("\n".join(lines))
    write_report(report, args.json)
    write_plot(args.plot, f"suffolk bench {report.benchmark}", panels)
    print(f"wrote {args.json} and {args.plot}")
    return 0
