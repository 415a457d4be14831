"""The options that all measurements share, and the files of their results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suffolk.benchmarks.plot import Panel, require_plots, write_plot
from suffolk.benchmarks.report import Report, plain, write_report
from suffolk.benchmarks.stopping import exit_code, stop_lines
from suffolk.cli.options.setting import Options, option
from suffolk.cli.output_file import plot_beside
from suffolk.serving.engine.sampling.settings import Seed


@dataclass(frozen=True, kw_only=True)
class SeedOptions(Options):
    """The seed of random choices."""

    GROUP = "report"
    seed: Seed = option(0, "seed of all random choices (default: 0)")


@dataclass(frozen=True, kw_only=True)
class ReportOptions(SeedOptions):
    """The files for the results."""

    GROUP = "report"
    json: Path | None = option(None, "file for the results (default: suffolk-MEASUREMENT.json)")
    plot: Path | None = option(None, "file for the plot (default: the JSON file's name with .png)")

    def outcome(self, name: str) -> Outcome:
        """The files of measurement ``name``, checked before it begins. Raises as ``require_plots`` and ``plot_beside``."""
        require_plots()
        file = self.json or Path(f"suffolk-{name}.json")
        return Outcome(name, self.seed, file, plot_beside(file, self.plot))


@dataclass(frozen=True, kw_only=True)
class WorkdirOptions(ReportOptions):
    """The folder for further files."""

    workdir: Path | None = option(
        None,
        "folder for further files, which later runs use again (default: suffolk-bench beside the JSON file)",
        metavar="DIR",
    )

    def folder(self, outcome: Outcome) -> Path:
        """``workdir`` or its default."""
        return self.workdir or outcome.json.parent / "suffolk-bench"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The files of one measurement.

    Attributes:
        name: name of the measurement.
        seed: seed of its random choices.
        json, plot: files to write.
    """

    name: str
    seed: int
    json: Path
    plot: Path

    def finish(
        self,
        settings: object,
        results: dict[str, Any],
        notes: tuple[str, ...],
        packages: tuple[str, ...],
        lines: list[str],
        panels: list[Panel],
        **more_settings: Any,
    ) -> int:
        """Print the tables and write both files, marked if the measurement was stopped; returns the exit code."""
        stopped = results.get("stopped")
        print("\n".join([*stop_lines(stopped), *lines]))
        every = plain(settings) | more_settings
        write_report(Report(self.name, self.seed, every, results, notes, packages), self.json)
        write_plot(self.plot, ", ".join([f"suffolk bench {self.name}", *stop_lines(stopped)]), panels)
        print(f"wrote {self.json} and {self.plot}")
        return exit_code(stopped)
