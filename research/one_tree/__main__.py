"""Compare one tree of all sources with each source alone, and with rules that choose one source per
step.

One run measures three things: M at equal numbers of nodes, along recorded plain answers of the model; the planner's
speed-up along these answers, by the measured costs of passes; and tokens/s in service, by the clock. Each result is
written at once, and the same command continues an
interrupted run. With --useless, the run measures how much sources that are never right slow
decoding. With --parts nodes, the drafter 'hindsight: NETWORK' gives an upper bound: it knows the
answer, and proposes the longest correct path of the texts and the network."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from research.one_tree.options import PARTS
from suffolk.benchmarks.decode.options import AnsweredPrompts
from suffolk.cli.bench.decode import DecodeModelOptions
from suffolk.cli.bench.report_options import Measured, PageOptions
from suffolk.cli.commands import Command
from suffolk.cli.drafting import DrafterOptions, PlannerOptions
from suffolk.cli.main import exit_code_of, run_command
from suffolk.cli.options import setting
from suffolk.cli.options.setting import Assignable, passed_on
from suffolk.cli.options.values import comma_list
from suffolk.datastore.settings import REQUIRED, Count, option

if TYPE_CHECKING:
    from research.one_tree.options import HybridOptions

EXAMPLES = """
python -m research.one_tree --model MODEL --datastore STORE --head HEAD --prompts prompts/ --limit 8 --output results/
python -m research.one_tree --model MODEL --datastore STORE --prompts prompts/ --useless --unrelated OTHER --output results/"""


@dataclass(frozen=True, kw_only=True)
class MeasuredOptions(setting.Options):
    """Options that select the measurements."""

    GROUP = "measured"
    output: Path = option(REQUIRED, "folder for answers, rows, report and plot", metavar="DIR")
    parts: tuple[str, ...] = option(PARTS, "what to measure", choices=PARTS, several=True)
    nodes: tuple[Count, ...] = option((8, 16, 64), "nodes of trees, for M", several=True)
    drafters: str | None = option(
        None,
        "names, separated by commas (default: all that can run); --parts nodes also takes 'hindsight: NETWORK'",
        metavar="LIST",
    )
    useless: bool = option(False, "compare the hybrid with and without useless sources")
    unrelated: str | None = option(
        None, "datastore for --useless, with text that has nothing to do with the prompts", metavar="STORE"
    )
    counted: bool = option(
        False,
        "for --parts planned: passes of draft models take the time that 'suffolk profile --as-draft-model' stored, and "
        "other drafting takes no time; not with --head, --levels or exit_layers",
    )


@dataclass(frozen=True, kw_only=True)
class Options(
    DecodeModelOptions, AnsweredPrompts, DrafterOptions, PlannerOptions, MeasuredOptions, PageOptions, Assignable
):
    exclude: Path | None = option(
        None, "file with the names of the prompts to leave out, one in each line", group="prompts"
    )
    temperature: tuple[float, ...] = option(
        (0.0,), "temperatures of the answers; 0 is greedy decoding", metavar="T", several=True, group="prompts"
    )

    def hybrid(self) -> HybridOptions:
        """The settings of the measurement. Raises InvalidArgument: they contradict each other."""
        from research.exclusions import read_excluded
        from research.one_tree.options import HybridOptions
        from suffolk.benchmarks.decode.options import DecodingOptions

        decoding = passed_on(
            self, DecodingOptions, datastores=self.datastore, models=self.drafter_config(), drafters=(), temperature=0.0
        )
        return passed_on(
            self,
            HybridOptions,
            decoding=decoding,
            temperatures=self.temperature,
            drafters=comma_list(self.drafters or ""),
            excluded=frozenset() if self.exclude is None else read_excluded(self.exclude),
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    command = Command(__doc__ or "", EXAMPLES, Options, _run)
    return exit_code_of(lambda: run_command(command, "python -m research.one_tree", words), "error")


def _run(options: Options) -> int:
    """Run the measurements without stored results, print, write; returns the exit code."""
    from research.one_tree import report
    from research.one_tree.compared_drafters import singles
    from research.one_tree.run import run_hybrid
    from research.one_tree.summary import summarize

    results_file, plot = (options.output / f"hybrid.{ending}" for ending in ("json", "png"))
    options.require(results_file, plot)
    outcome = Measured("hybrid", options.seed, results_file, plot, options.report)
    chosen = options.hybrid()
    try:
        log, facts = run_hybrid(chosen)
    except KeyboardInterrupt:
        print("interrupted; the same command continues from here", file=sys.stderr)
        return 130
    decoding = chosen.decoding
    alone = singles(list(decoding.models.parts()), bool(decoding.datastores))
    summary = summarize(log.rows, alone)
    results = {**facts, "runs": log.runs, "singles": alone, "summary": summary}
    return outcome.finish(chosen, results, report, **chosen.settings())


if __name__ == "__main__":
    sys.exit(main())
