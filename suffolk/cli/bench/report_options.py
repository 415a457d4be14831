"""The options that all measurements share, and the files of their results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from suffolk.benchmarks.page import write_page
from suffolk.benchmarks.parts import exit_code, stop_lines
from suffolk.benchmarks.plot import Panel, require_plots, write_plot
from suffolk.benchmarks.report import make_report, plain, write_report
from suffolk.cli.options.setting import Options
from suffolk.cli.output_file import plot_beside, require_folder
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.settings import option
from suffolk.datastore.text_table import Table
from suffolk.serving.decoding.engine.sampling.settings import Seed


class ResultReport(Protocol):
    """A module that shows the results of a measurement, with these names."""

    @property
    def NOTES(self) -> tuple[str, ...]:  # noqa: N802
        """Definitions of the values, and how they were measured."""

    @property
    def PACKAGES(self) -> tuple[str, ...]:  # noqa: N802
        """Packages whose versions are recorded."""

    def tables(self, results: dict[str, Any], /) -> list[str | Table]:
        """Tables, and text between them."""

    def plots(self, results: dict[str, Any], /) -> list[Panel]:
        """One panel for each plot."""


@dataclass(frozen=True, kw_only=True)
class PageOptions(Options):
    """The seed of random choices, and the page of the results."""

    GROUP = "report"
    seed: Seed = option(0, "seed of all random choices (default: 0)")
    report: Path | None = option(
        None, "also write the tables and plots as one HTML file, which needs no other file", written=True
    )

    def require(self, *others: Path) -> None:
        """Check before a measurement that its page and plots can be written. ``others``: the measurement's other files.

        Raises InvalidArgument if the page is one of ``others``, and the errors of ``require_plots`` and ``require_folder``.
        """
        require_plots()
        require_folder("--report", self.report)
        if self.report is not None and self.report.resolve() in {each.resolve() for each in others}:
            raise InvalidArgument(f"--report {self.report} is also the file of other results; name another")


@dataclass(frozen=True, kw_only=True)
class ReportOptions(PageOptions):
    """The files for the results."""

    GROUP = "report"
    json: Path | None = option(None, "file for the results (default: suffolk-MEASUREMENT.json)", written=True)
    plot: Path | None = option(None, "file for the plot (default: the JSON file's name with .png)", written=True)

    def outcome(self, name: str) -> Measured:
        """The files of measurement ``name``, checked before it begins. Raises the errors of ``require`` and ``plot_beside``."""
        file = self.json or Path(f"suffolk-{name}.json")
        plot = plot_beside(file, self.plot)
        self.require(file, plot)
        return Measured(name, self.seed, file, plot, self.report)


@dataclass(frozen=True, kw_only=True)
class WorkdirOptions(ReportOptions):
    """The folder for further files."""

    workfolder: Path | None = option(
        None,
        "folder for further files, which later runs use again (default: suffolk-bench beside the JSON file)",
        flag="--workdir",
        metavar="DIR",
    )

    @property
    def folder(self) -> Path:
        """``workfolder`` or its default."""
        return self.workfolder or (self.json or Path()).parent / "suffolk-bench"


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
        report: ResultReport,
        notes: tuple[str, ...] | None = None,
        **more_settings: Any,
    ) -> int:
        """Print the tables and write the files, marked if the measurement was stopped; returns the exit code.

        Args:
            settings: dataclass of options. more_settings: further options, or other values of these options.
            results: as in ``make_report``.
            report: module of the measurement's tables and plots.
            notes: replace the module's notes.
        """
        notes = report.NOTES if notes is None else notes
        stopped, parts, panels = results.get("stopped"), report.tables(results), report.plots(results)
        print("\n".join([*stop_lines(stopped), *map(str, parts), *(f"note: {note}" for note in notes)]))
        every = plain(settings) | more_settings
        written = make_report(self.name, self.seed, every, results, notes, report.PACKAGES)
        write_report(written, self.json)
        write_plot(self.plot, ", ".join([f"suffolk bench {self.name}", *stop_lines(stopped)]), panels)
        files = f"{self.json} and {self.plot}"
        if self.page is not None:
            write_page(self.page, written, parts, panels)
            files = f"{self.json}, {self.plot} and {self.page}"
        print(f"wrote {files}")
        return exit_code(stopped)
