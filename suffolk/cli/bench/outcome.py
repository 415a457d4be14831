"""What every measurement ends with: tables on the terminal, a JSON file and a plot."""

from __future__ import annotations

import argparse

from suffolk.benchmarks.plot import Panel, write_plot
from suffolk.benchmarks.report import Report, write_report
from suffolk.benchmarks.stopping import exit_code, stop_lines


def finish(args: argparse.Namespace, report: Report, lines: list[str], panels: list[Panel]) -> int:
    """Print the tables and write both files, all marked where the measurement was stopped; returns the exit code."""
    stopped = report.results.get("stopped")
    print("\n".join([*stop_lines(stopped), *lines]))
    write_report(report, args.json)
    write_plot(args.plot, ", ".join([f"suffolk bench {report.benchmark}", *stop_lines(stopped)]), panels)
    print(f"wrote {args.json} and {args.plot}")
    return exit_code(stopped)
