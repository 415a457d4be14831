"""The end of every measurement: tables on the terminal, a JSON file and a plot."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from suffolk.benchmarks.plot import Panel, require_plots, write_plot
from suffolk.benchmarks.report import Report, write_report
from suffolk.benchmarks.stopping import exit_code, stop_lines
from suffolk.cli.output_file import plot_beside


@dataclass(frozen=True, slots=True)
class Outcome:
    """The files of one measurement, checked before it begins.

    Attributes:
        json, plot: files to write.
    """

    json: Path
    plot: Path

    @classmethod
    def of(cls, name: str, json: Path | None, plot: Path | None) -> Outcome:
        """The files of measurement ``name``; None for the default names. Raises as ``require_plots`` and ``plot_beside``."""
        require_plots()
        file = json or Path(f"suffolk-{name}.json")
        return cls(file, plot_beside(file, plot))

    @property
    def workdir(self) -> Path:
        """The folder for further files."""
        return self.json.parent / "suffolk-bench"

    def finish(self, report: Report, lines: list[str], panels: list[Panel]) -> int:
        """Print the tables and write both files, marked if the measurement was stopped; returns the exit code."""
        stopped = report.results.get("stopped")
        print("\n".join([*stop_lines(stopped), *lines]))
        write_report(report, self.json)
        write_plot(self.plot, ", ".join([f"suffolk bench {report.benchmark}", *stop_lines(stopped)]), panels)
        print(f"wrote {self.json} and {self.plot}")
        return exit_code(stopped)
