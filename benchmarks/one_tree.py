"""What one tree of all sources is worth: beside each source alone, and beside rules that choose one source a step.

In one run: M at equal numbers of nodes, along the model's recorded plain answers; what the planner gains along them, by the costs
of passes; and tokens/s in service, by the clock.
Results are written as they come; the same command goes on where an interrupted one ended. With --useless: what one tree loses by
sources that are never right."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from suffolk.benchmarks.command import add_seed, command_parser, run_command
from suffolk.benchmarks.compared_drafters import HYBRID, singles
from suffolk.benchmarks.decoding_options import DecodingOptions, given
from suffolk.benchmarks.hindsight_drafter import HINDSIGHT
from suffolk.benchmarks.one_tree_options import PARTS, OneTreeOptions
from suffolk.benchmarks.one_tree_report import NOTES, PACKAGES, one_tree_lines, one_tree_panels
from suffolk.benchmarks.one_tree_run import run_one_tree
from suffolk.benchmarks.one_tree_summary import summarize
from suffolk.benchmarks.plot import require_plots, write_plot
from suffolk.benchmarks.prompts import STYLES, read_excluded
from suffolk.benchmarks.report import Report, write_report
from suffolk.cli.model_options import add_model_drafters, add_recycle_option, read_model_sources

EXAMPLES = (
    "--model MODEL --datastore STORE --head HEAD --prompts prompts/ --limit 8 --output results/",
    "--model MODEL --datastore STORE --prompts prompts/ --useless --unrelated OTHER --output results/",
)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def read_options(args: argparse.Namespace) -> OneTreeOptions:
    """What the command line asks for."""
    decoding = DecodingOptions(
        model=args.model, prompts=tuple(args.prompts), datastores=given(args.datastore), models=read_model_sources(args),
        drafters=(), style=args.style, limit=args.limit, max_new_tokens=args.max_new_tokens, ignore_eos=args.ignore_eos,
        seed=args.seed, max_nodes=args.max_nodes, dtype=args.dtype, device=args.device, threads=args.threads, costs=args.costs,
    )  # fmt: skip
    return OneTreeOptions(
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


def _run(args: argparse.Namespace) -> int:
    require_plots()
    options = read_options(args)
    try:
        log, facts = run_one_tree(options)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    decoding = options.decoding
    alone = singles(decoding.models.kinds(), bool(decoding.datastores))
    summary = summarize(log.rows, alone)
    results = {**facts, "runs": log.runs, "singles": alone, "summary": summary}
    settings = options.settings() | {
        "parts": options.parts,
        "temperatures": options.temperatures,
        "nodes": options.nodes,
    }
    report = Report("one_tree", decoding.seed, settings, results, NOTES, PACKAGES)
    print("\n".join([*one_tree_lines(summary), *(f"note: {note}" for note in NOTES)]))
    write_report(report, options.output / "one_tree.json")
    write_plot(
        options.output / "one_tree.png",
        f"{HYBRID} and its rivals, {Path(decoding.model).name}",
        one_tree_panels(summary),
    )
    print(f"written: {options.output / 'one_tree.json'}, {options.output / 'one_tree.png'}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("one_tree", __doc__, *EXAMPLES)
    add = parser.add_argument
    add("--model", required=True, help="model folder in the Hugging Face layout, or hub name")
    add("--prompts", required=True, nargs="+", type=Path, metavar="PATH", help=".jsonl files or folders")
    add("--datastore", metavar="STORE", help="folder or URL of a datastore")
    add_model_drafters(parser)
    add_recycle_option(parser)
    add("--output", required=True, type=Path, metavar="DIR", help="of answers, rows, report and plot")
    add("--exclude", type=Path, metavar="FILE", help="names of prompts to leave out, as benchmarks.overlap writes them")
    add("--style", choices=STYLES, default="both", help="for rows with a prefill (default: both)")
    add("--limit", type=int, metavar="N", help="prompts of each file, chosen at random (default: all)")
    add("--max-new-tokens", type=int, default=128, metavar="N", help="longest answer (default: %(default)s)")
    add("--temperature", type=float, nargs="+", default=[0.0], metavar="T", help="0: greedy (default: 0)")
    add("--nodes", type=int, nargs="+", default=[8, 16, 64], metavar="N", help="of trees, for M (default: 8 16 64)")
    add("--ignore-eos", action="store_true", help="do not end at the model's end-of-text tokens")
    add("--max-nodes", type=int, default=64, metavar="N", help="largest tree in service (default: %(default)s)")
    add("--parts", choices=PARTS, nargs="+", default=list(PARTS), help="what to measure (default: all)")
    drafters = (
        f"separated by commas (default: all that can run); with --parts nodes '{HINDSIGHT}: NETWORK' too (see README)"
    )
    add("--drafters", metavar="LIST", help=drafters)
    add("--useless", action="store_true", help="compare one tree with itself with useless sources")
    add("--unrelated", metavar="STORE", help="with --useless: a datastore that has nothing to do with the prompts")
    counted = "in the part planned, draft models' passes take what 'suffolk profile --as-draft-model' stored, the rest no time"
    add("--counted", action="store_true", help=f"{counted}; not with --head, --exit-layers or --levels")
    add("--dtype", default="auto", help="auto, float32, bfloat16, float16 or float64 (default: as stored)")
    add("--device", default="auto", help="auto, cpu, cuda, cuda:1 ... (default: %(default)s)")
    add("--threads", type=int, metavar="N", help="CPU threads (default: torch's choice)")
    add("--costs", type=Path, metavar="FILE", help="what 'suffolk profile' measured (default: what it stored)")
    add_seed(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
