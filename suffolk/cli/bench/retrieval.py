"""Latency of lookups and drafts, in-process and over gRPC."""

from __future__ import annotations

import argparse
from pathlib import Path

from suffolk.cli.filled import filled_path

EXAMPLES = ("STORE --against draftretriever --grpc --json retrieval.json",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare its options."""
    parser.add_argument("store", type=filled_path, metavar="STORE", help="a datastore's folder")
    parser.add_argument(
        "--queries", type=int, default=20_000, metavar="N", help="contexts of each kind (default: %(default)s)"
    )
    parser.add_argument(
        "--called",
        type=int,
        default=1000,
        metavar="N",
        help="of them, how many are also asked through Python, gRPC and of draftretriever (default: %(default)s)",
    )
    parser.add_argument(
        "--rounds", type=int, default=3, metavar="N", help="timed rounds, after one to warm up (default: %(default)s)"
    )
    parser.add_argument(
        "--contexts",
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE",
        help="text or .jsonl files that are not in the corpus, for the unseen contexts "
        "(default: seen ones with a token replaced)",
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
        help="answers of each kind to check by a scan (default: %(default)s)",
    )
    parser.add_argument(
        "--max-nodes", type=int, default=64, metavar="N", help="nodes in a draft (default: %(default)s)"
    )
    parser.add_argument(
        "--workdir",
        type=Path,
        metavar="DIR",
        help="for draftretriever's index, used again (default: beside the JSON file)",
    )


def run(args: argparse.Namespace) -> int:
    """Measure, print, write; returns the exit code."""
    from suffolk.benchmarks.plot import require_plots
    from suffolk.benchmarks.report import Report, plain
    from suffolk.benchmarks.retrieval.measure import measure_retrieval
    from suffolk.benchmarks.retrieval.options import RetrievalOptions
    from suffolk.benchmarks.retrieval.report import NOTES, PACKAGES, retrieval_lines, retrieval_panels
    from suffolk.cli.bench.outcome import finish

    require_plots()
    options = RetrievalOptions(
        store=args.store,
        workdir=args.workdir or args.json.parent / "suffolk-bench",
        queries=args.queries,
        called=args.called,
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
    return finish(args, report, retrieval_lines(results), retrieval_panels(results))
