"""Measure retrieval, building and decoding, each beside what it is to be compared with, in one run.

Every measurement prints tables and writes a JSON file (machine, versions, commit, seed, command line) and a plot."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.plot import Panel
    from benchmarks.report import Report

EPILOG = """examples:
  suffolk bench retrieval STORE --against draftretriever --grpc --json retrieval.json
  suffolk bench build --tokenizer MODEL_FOLDER src/ --json build.json
  suffolk bench decode --model MODEL_FOLDER --datastore STORE --prompts prompts/ --limit 10 --json decode.json

'suffolk bench MEASUREMENT --help' shows its options. The extra packages: pip install 'suffolk[bench]'"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the measurements and their options."""
    parser.epilog = EPILOG
    measurements = parser.add_subparsers(title="measurements", metavar="MEASUREMENT", required=True, dest="measurement")
    _add_retrieval(measurements.add_parser("retrieval", help="latency of lookups and drafts, in-process and over gRPC"))


def run(args: argparse.Namespace) -> int:
    """Run one measurement; returns the exit code."""
    return {"retrieval": _run_retrieval}[args.measurement](args)


def _add_retrieval(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", type=Path, metavar="STORE", help="a datastore's folder")
    parser.add_argument(
        "--queries", type=int, default=1000, metavar="N", help="contexts of each kind (default: %(default)s)"
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=3,
        metavar="N",
        help="timed rounds over them, after a warm-up round (default: %(default)s)",
    )
    parser.add_argument(
        "--contexts",
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE",
        help="text or .jsonl files not in the corpus, for the unseen contexts (default: seen ones with a token replaced)",
    )
    parser.add_argument(
        "--against", choices=("draftretriever",), help="measure this package on the same tokens as well"
    )
    parser.add_argument("--grpc", action="store_true", help="measure through 'suffolk serve' as well, in batches")
    parser.add_argument(
        "--batches",
        type=int,
        nargs="+",
        default=[1, 8, 32],
        metavar="N",
        help="contexts in a call, with --grpc (default: 1 8 32)",
    )
    parser.add_argument("--tokens", type=int, metavar="N", help="use the first N tokens alone (default: all)")
    parser.add_argument(
        "--checked",
        type=int,
        default=20,
        metavar="N",
        help="answers of each kind to compare with a scan of all tokens (default: %(default)s)",
    )
    parser.add_argument(
        "--max-nodes", type=int, default=64, metavar="N", help="nodes in a draft (default: %(default)s)"
    )
    parser.add_argument(
        "--workdir",
        type=Path,
        metavar="DIR",
        help="for draftretriever's index, used again by later runs (default: beside the JSON file)",
    )
    _add_common(parser, "retrieval")


def _add_common(parser: argparse.ArgumentParser, name: str) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--json",
        type=Path,
        default=Path(f"suffolk-{name}.json"),
        metavar="FILE",
        help="where the results go (default: %(default)s)",
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="where the plot goes (default: the JSON file's name with .png)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of every random choice (default: %(default)s)"
    )


def _run_retrieval(args: argparse.Namespace) -> int:
    from benchmarks.plot import require_plots
    from benchmarks.report import Report, plain
    from benchmarks.retrieval import measure_retrieval
    from benchmarks.retrieval_options import RetrievalOptions
    from benchmarks.retrieval_report import NOTES, PACKAGES, retrieval_lines, retrieval_panels

    require_plots()
    options = RetrievalOptions(
        store=args.store,
        workdir=args.workdir or args.json.parent / "suffolk-bench",
        queries=args.queries,
        rounds=args.rounds,
        checked=args.checked,
        tokens=args.tokens,
        unseen=tuple(args.contexts),
        against=args.against is not None,
        grpc=args.grpc,
        batches=tuple(args.batches),
        max_nodes=args.max_nodes,
        seed=args.seed,
    )
    results = measure_retrieval(options)
    report = Report("retrieval", args.seed, plain(options), results, NOTES, PACKAGES)
    return _finish(args, report, retrieval_lines(results), retrieval_panels(results))


def _finish(args: argparse.Namespace, report: Report, lines: list[str], panels: list[Panel]) -> int:
    from benchmarks.plot import write_plot
    from benchmarks.report import write_report

    print("\n".join(lines))
    plot = args.plot or args.json.with_suffix(".png")
    write_report(report, args.json)
    write_plot(plot, f"suffolk bench {report.benchmark}", panels)
    print(f"wrote {args.json} and {plot}")
    return 0
