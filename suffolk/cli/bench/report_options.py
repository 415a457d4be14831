"""The options that all measurements share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from suffolk.cli.options.setting import Options, option
from suffolk.serving.engine.sampling.settings import Seed

if TYPE_CHECKING:
    from suffolk.cli.bench.outcome import Outcome

WORKDIR = "folder for further files, which later runs use again (default: suffolk-bench beside the JSON file)"


@dataclass(frozen=True, kw_only=True)
class SeedOptions(Options):
    """The seed of random choices."""

    GROUP = "report"
    seed: Seed = option(0, "seed of all random choices (default: 0)")


@dataclass(frozen=True, kw_only=True)
class ReportOptions(SeedOptions):
    """The files for the results."""

    GROUP = "report"
    json: Path | None = option(None, "for the results (default: suffolk-MEASUREMENT.json)")
    plot: Path | None = option(None, "for the plot (default: the JSON file's name with .png)")

    def outcome(self, name: str) -> Outcome:
        """The files of measurement ``name``. Raises as ``Outcome.of``."""
        from suffolk.cli.bench.outcome import Outcome

        return Outcome.of(name, self.json, self.plot)
