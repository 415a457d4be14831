"""The options that all measurements share, and the files of their results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suffolk.benchmarks.page import write_page
from suffolk.benchmarks.parts import exit_code, stop_lines
from suffolk.benchmarks.plot import Panel, require_plots, write_plot
from suffolk.benchmarks.report import Report, plain, write_report
from suffolk.cli.options.setting import Options, option
from suffolk.cli.output_file import plot_beside, require_page
from suffolk.datastore.text_table import Table
from suffolk.serving.decoding.engine.sampling.settings import Seed


@dataclass(frozen=True, kw_only=True)
class PageOptions(Options):
    """The seed of random choices, and the page of the results."""

    GROUP = "report"
    seed: Seed = option(0, "seed of all random choices (default: 0)")
    report: Path | None = option(
        None, "also write the tables and plots as one HTML file, which needs no other file", written=True
    )

    def require(self, *others: Path) -> None:
        """Check before a measurement that its page and plots can be written. ``others``: its other files.

        Raises as ``require_plots`` and ``require_page``.
        """
        require_plots()
        require_page(self.report, *others)


@dataclass(frozen=True, kw_only=True)
class ReportOptions(PageOptions):
    """The files for the results."""

    GROUP = "report"
    json: Path | None = option(None, "file for the results (default: suffolk-MEASUREMENT.json)", written=True)
    plot: Path | None = option(None, "file for the plot (default: the JSON file's name with .png)", written=True)

    def outcome(self, name: str) -> Measured:
        """The files of measurement ``name``, checked before it begins. Raises as ``require`` and ``plot_beside``."""
        file = self.json or Path(f"suffolk-{name}.json")
        plot = plot_beside(file, self.plot)
        self.require(file, plot)
        return Measured(name, self.seed, file, plot, self.report)


@dataclass(frozen=True, kw_only=True)
class WorkdirOptions(ReportOptions):
    """The folder for further files."""

    workdir: Path | None = option(
        None,
        "folder for further files, which later runs use again (default: suffolk-bench beside the JSON file)",
        metavar="DIR",
    )

    def folder(self, outcome: Measured) -> Path:
        """``workdir`` or its default."""
        return self.workdir or outcome.json.parent / "suffolk-bench"


@dataclass(frozen=True, slots=True)
class Measured:
    """The files of one measurement.

    Attributes:
        name: name of the measurement.
        seed: seed of its random choices.
        json, plot: files to write.
        page: HTML file to write, or None.
    """

    name: str
    seed: int
    json: Path
    plot: Path
    page: Path | None

    def finish(
        self,
        settings: object,
        results: dict[str, Any],
        notes: tuple[str, ...],
        packages: tuple[str, ...],
        parts: list[str | Table],
        panels: list[Panel],
        **more_settings: Any,
    ) -> int:
        """Print the tables and write the files, marked if the measurement was stopped; returns the exit code.

        Args:
            settings: dataclass of options. more_settings: further ones, or other values of these.
            results, notes, packages: as in ``Report``.
            parts: tables, and text between them.
            panels: the plots.
        """
        stopped = results.get("stopped")
        print("\n".join([*stop_lines(stopped), *map(str, parts), *(f"note: {note}" for note in notes)]))
        every = plain(settings) | more_settings
        written = write_report(Report(self.name, self.seed, every, results, notes, packages), self.json)
        write_plot(self.plot, ", ".join([f"suffolk bench {self.name}", *stop_lines(stopped)]), panels)
        files = f"{self.json} and {self.plot}"
        if self.page is not None:
            write_page(self.page, written, parts, panels)
            files = f"{self.json}, {self.plot} and {self.page}"
        print(f"wrote {files}")
        return exit_code(stopped)
