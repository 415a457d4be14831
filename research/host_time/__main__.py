"""Measure the host's processor time in a step. It needs no model and no datastore.

Passes are not computed; the drafting policy is told a time for each. The datastore holds Python's standard library.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from research.host_time.options import HostOptions
from suffolk.cli.bench.report_options import ReportOptions
from suffolk.cli.commands import Command
from suffolk.cli.main import exit_code_of, run_command
from suffolk.cli.options.setting import passed_on

EXAMPLES = """
python -m research.host_time --json host.json
python -m research.host_time --requests 1 64 --drafters hybrid --temperature 0.7
python -m research.host_time --costs costs.json --rounds 10"""


@dataclass(frozen=True, kw_only=True)
class Options(ReportOptions, HostOptions):
    """The settings, and the files of the results."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    command = Command(__doc__ or "", EXAMPLES, Options, _run)
    return exit_code_of(lambda: run_command(command, "python -m research.host_time", words), "error")


def _run(options: Options) -> int:
    from research.host_time import measure

    outcome, settings = options.outcome("host"), passed_on(options, HostOptions)
    return outcome.finish(settings, measure.measure_host(settings), measure)


if __name__ == "__main__":
    sys.exit(main())
