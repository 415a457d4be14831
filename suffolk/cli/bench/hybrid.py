"""One tree of all sources, beside each source alone and beside rules that choose one source a step.

One run measures three things. M at equal numbers of nodes, along the model's recorded plain answers. The planner's speed-up along
them, by the measured costs of passes. Tokens/s in service, by the clock.
Results are written as they come: the same command continues an interrupted run. With --useless, it measures the loss by sources
that are never right."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from suffolk.cli.bench.decoding_options import add_decoding_options, read_decoding_options
from suffolk.cli.drafter_options import add_drafter_options, read_drafter_config

if TYPE_CHECKING:
    from suffolk.benchmarks.hybrid.options import HybridOptions

EXAMPLES = (
    "--model MODEL --datastore STORE --head HEAD --prompts prompts/ --limit 8 --output results/",
    "--model MODEL --datastore STORE --prompts prompts/ --useless --unrelated OTHER --output results/",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare its options."""
    from suffolk.benchmarks.hybrid.options import PARTS

    add_decoding_options(parser)
    add = parser.add_argument
    add("--datastore", metavar="STORE", help="folder or URL of a datastore")
    add_drafter_options(parser, without=["datastore"])
    add("--output", required=True, type=Path, metavar="DIR", help="of answers, rows, report and plot")
    add("--exclude", type=Path, metavar="FILE", help="names of prompts to leave out, one a line")
    add("--temperature", type=float, nargs="+", default=[0.0], metavar="T", help="0: greedy (default: 0)")
    add("--nodes", type=int, nargs="+", default=[8, 16, 64], metavar="N", help="of trees, for M (default: 8 16 64)")
    add("--parts", choices=PARTS, nargs="+", default=list(PARTS), help="what to measure (default: all)")
    drafters = (
        "separated by commas (default: all that can run); with --parts nodes also 'hindsight: NETWORK', an upper bound"
    )
    add("--drafters", metavar="LIST", help=drafters)
    add("--useless", action="store_true", help="compare one tree with itself with useless sources")
    add("--unrelated", metavar="STORE", help="with --useless: a datastore that has nothing to do with the prompts")
    counted = "in the part planned, draft models' passes take what 'suffolk profile --as-draft-model' stored, the rest no time"
    add("--counted", action="store_true", help=f"{counted}; not with --head, --exit-layers or --levels")


def run(args: argparse.Namespace) -> int:
    """Measure what is not on file yet, print, write; returns the exit code."""
    from suffolk.benchmarks.hybrid.compared_drafters import HYBRID, singles
    from suffolk.benchmarks.hybrid.report import NOTES, PACKAGES, hybrid_lines, hybrid_panels
    from suffolk.benchmarks.hybrid.run import run_hybrid
    from suffolk.benchmarks.hybrid.summary import summarize
    from suffolk.benchmarks.plot import require_plots, write_plot
    from suffolk.benchmarks.report import Report, write_report

    require_plots()
    options = read_options(args)
    try:
        log, facts = run_hybrid(options)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    decoding = options.decoding
    alone = singles(list(decoding.models.parts()), bool(decoding.datastores))
    summary = summarize(log.rows, alone)
    results = {**facts, "runs": log.runs, "singles": alone, "summary": summary}
    settings = options.settings() | {
        "parts": options.parts,
        "temperatures": options.temperatures,
        "nodes": options.nodes,
    }
    report = Report("hybrid", decoding.seed, settings, results, NOTES, PACKAGES)
    print("\n".join([*hybrid_lines(summary), *(f"note: {note}" for note in NOTES)]))
    write_report(report, options.output / "hybrid.json")
    write_plot(
        options.output / "hybrid.png",
        f"{HYBRID} and single sources, {Path(decoding.model).name}",
        hybrid_panels(summary),
    )
    print(f"written: {options.output / 'hybrid.json'}, {options.output / 'hybrid.png'}")
    return 0


def read_options(args: argparse.Namespace) -> HybridOptions:
    """The options of the command line."""
    from suffolk.benchmarks.decode.options import DecodingOptions, given
    from suffolk.benchmarks.hybrid.options import HybridOptions
    from suffolk.benchmarks.prompts import read_excluded

    decoding = DecodingOptions(
        **read_decoding_options(args), datastores=given(args.datastore), models=read_drafter_config(args), drafters=()
    )
    return HybridOptions(
        decoding=decoding,
        output=args.output,
        temperatures=tuple(args.temperature),
        nodes=tuple(args.nodes),
        parts=tuple(args.parts),
        drafters=tuple(part.strip() for part in (args.drafters or "").split(",") if part.strip()),
        useless=args.useless,
        unrelated=args.unrelated,
        excluded=frozenset() if args.exclude is None else read_excluded(args.exclude),
        counted=args.counted,
    )
