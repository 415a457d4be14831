"""Measure retrieval, building, decoding and memory, each beside what it is to be compared with, in one run.

Every measurement prints tables and writes a JSON file (machine, versions, commit, seed, command line) and a plot."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from datastore.datastore import RESIDENCIES

if TYPE_CHECKING:
    from benchmarks.plot import Panel
    from benchmarks.report import Report

EPILOG = """examples:
  suffolk bench retrieval STORE --against draftretriever --grpc --json retrieval.json
  suffolk bench build --tokenizer MODEL_FOLDER src/ --json build.json
  suffolk bench decode --model MODEL_FOLDER --datastore STORE --prompts prompts/ --limit 10 --json decode.json
  suffolk bench memory STORE --limits 1 0.5 0.2 --json memory.json

'suffolk bench MEASUREMENT --help' shows its options. The extra packages: pip install 'suffolk[bench]'"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the measurements and their options."""
    parser.epilog = EPILOG
    measurements = parser.add_subparsers(title="measurements", metavar="MEASUREMENT", required=True, dest="measurement")
    for name, (summary, example, declare) in MEASUREMENTS.items():
        declare(
            measurements.add_parser(
                name,
                help=summary,
                description=summary,
                epilog=f"example:\n  suffolk bench {name} {example}",
                formatter_class=argparse.RawDescriptionHelpFormatter,
            )
        )


def run(args: argparse.Namespace) -> int:
    """Run one measurement; returns the exit code."""
    runs = {"retrieval": _run_retrieval, "build": _run_building, "decode": _run_decoding, "memory": _run_memory}
    return runs[args.measurement](args)


def _add_retrieval(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", type=Path, metavar="STORE", help="a datastore's folder")
    parser.add_argument(
        "--queries", type=int, default=1000, metavar="N", help="contexts of each kind (default: %(default)s)"
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
    _add_common(parser, "retrieval")


def _add_building(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("corpora", nargs="+", metavar="CORPUS", help="file, folder or pattern with text")
    parser.add_argument(
        "--tokenizer", required=True, metavar="TOK", help="Hugging Face folder, tokenizer.json or hub name"
    )
    parser.add_argument(
        "--text-field", default="text", metavar="NAME", help="field or column with the text (default: text)"
    )
    parser.add_argument(
        "--extensions", default="", metavar="LIST", help="take only these from folders, such as .py,.md"
    )
    parser.add_argument(
        "--rounds", type=int, default=1, metavar="N", help="runs of each, in turn (default: %(default)s)"
    )
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="for suffolk build (default: every core)")
    parser.add_argument("--workdir", type=Path, metavar="DIR", help="for what is built (default: beside the JSON file)")
    _add_common(parser, "build")


def _add_decoding(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help="model folder in the Hugging Face layout, or hub name")
    parser.add_argument(
        "--prompts", required=True, nargs="+", type=Path, metavar="PATH", help=".jsonl files, or folders of them"
    )
    parser.add_argument("--datastore", metavar="STORE", help="folder of a datastore, or grpc://HOST:PORT/NAME")
    parser.add_argument("--drafters", metavar="LIST", help="separated by commas (default: all that can run)")
    parser.add_argument(
        "--style", choices=("chat", "prefill", "both"), default="both", help="for rows with a prefill (default: both)"
    )
    parser.add_argument("--limit", type=int, metavar="N", help="prompts of each file, chosen at random (default: all)")
    parser.add_argument(
        "--max-new-tokens", type=int, default=128, metavar="N", help="longest answer (default: %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="runs of all prompts (default: %(default)s)")
    parser.add_argument(
        "--control", action="store_true", help="run plain decoding twice, to show how large the noise is"
    )
    parser.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0: greedy (default: %(default)s)")
    parser.add_argument("--top-p", type=float, default=1.0, metavar="P", help="1: no limit (default: %(default)s)")
    parser.add_argument("--ignore-eos", action="store_true", help="do not end at the model's end-of-text tokens")
    parser.add_argument("--max-nodes", type=int, default=64, metavar="N", help="largest tree (default: %(default)s)")
    parser.add_argument(
        "--dtype", default="auto", help="auto, float32, bfloat16, float16 or float64 (default: as stored)"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 ... (default: %(default)s)")
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads (default: torch's choice)")
    _add_common(parser, "decode")


def _add_memory(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", type=Path, metavar="STORE", help="a datastore's folder, on the disk to be measured")
    parser.add_argument(
        "--limits",
        type=float,
        nargs="+",
        default=[1.0, 0.5, 0.2],
        metavar="SHARE",
        help="of the store that memory may hold; 1 sets no limit (default: 1 0.5 0.2)",
    )
    parser.add_argument(
        "--residency",
        nargs="+",
        choices=RESIDENCIES,
        default=["mmap", "warm"],
        help="policies to measure (default: mmap warm)",
    )
    parser.add_argument("--queries", type=int, default=1000, metavar="N", help="contexts (default: %(default)s)")
    parser.add_argument(
        "--rounds", type=int, default=2, metavar="N", help="rounds after the cold one (default: %(default)s)"
    )
    parser.add_argument("--workdir", type=Path, metavar="DIR", help="for the contexts (default: beside the JSON file)")
    _add_common(parser, "memory")


def _add_common(parser: argparse.ArgumentParser, name: str) -> None:
    parser.add_argument(
        "--json",
        type=Path,
        default=Path(f"suffolk-{name}.json"),
        metavar="FILE",
        help="for the results (default: %(default)s)",
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="for the plot (default: the JSON file's name with .png)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of every random choice (default: %(default)s)"
    )


MEASUREMENTS = {
    "retrieval": (
        "latency of lookups and drafts, in-process and over gRPC",
        "STORE --against draftretriever --grpc --json retrieval.json",
        _add_retrieval,
    ),
    "decode": (
        "plain decoding against each drafter",
        "--model MODEL_FOLDER --datastore STORE --prompts prompts/ --limit 10 --json decode.json",
        _add_decoding,
    ),
    "build": (
        "throughput and memory of building",
        "--tokenizer MODEL_FOLDER src/ --json build.json",
        _add_building,
    ),
    "memory": (
        "a datastore larger than memory: cold start, latency, page faults",
        "STORE --limits 1 0.5 0.2 --json memory.json",
        _add_memory,
    ),
}
"""Name -> one line of help, an example, and what declares the options."""


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


def _run_building(args: argparse.Namespace) -> int:
    from benchmarks.building import BuildingOptions, measure_building
    from benchmarks.building_report import NOTES, PACKAGES, building_lines, building_panels
    from benchmarks.plot import require_plots
    from benchmarks.report import Report, plain

    require_plots()
    options = BuildingOptions(
        corpora=tuple(args.corpora),
        tokenizer=args.tokenizer,
        workdir=args.workdir or args.json.parent / "suffolk-bench",
        rounds=args.rounds,
        text_field=args.text_field,
        extensions=tuple(part for part in args.extensions.split(",") if part),
        threads=args.threads,
    )
    results = measure_building(options)
    report = Report("build", args.seed, plain(options), results, NOTES, PACKAGES)
    return _finish(args, report, building_lines(results), building_panels(results))


def _run_decoding(args: argparse.Namespace) -> int:
    from benchmarks.decoding import measure_decoding
    from benchmarks.decoding_options import DecodingOptions
    from benchmarks.decoding_report import NOTES, PACKAGES, decoding_lines, decoding_panels
    from benchmarks.plot import require_plots
    from benchmarks.report import Report, plain

    require_plots()
    possible = "prompt-lookup,datastore,hybrid" if args.datastore else "prompt-lookup"
    options = DecodingOptions(
        model=args.model,
        prompts=tuple(args.prompts),
        datastore=args.datastore,
        drafters=tuple(part for part in (args.drafters or possible).split(",") if part),
        style=args.style,
        limit=args.limit,
        rounds=args.rounds,
        control=args.control,
        max_new_tokens=args.max_new_tokens,
        temperature=args.temperature,
        top_p=args.top_p,
        ignore_eos=args.ignore_eos,
        seed=args.seed,
        max_nodes=args.max_nodes,
        dtype=args.dtype,
        device=args.device,
        threads=args.threads,
    )
    results = measure_decoding(options, lambda line: print(line, file=sys.stderr, flush=True))
    report = Report("decode", args.seed, plain(options), results, NOTES, PACKAGES)
    return _finish(args, report, decoding_lines(results), decoding_panels(results))


def _run_memory(args: argparse.Namespace) -> int:
    from benchmarks.larger_than_memory import MemoryOptions, measure_memory
    from benchmarks.larger_than_memory_report import NOTES, PACKAGES, memory_lines, memory_panels
    from benchmarks.plot import require_plots
    from benchmarks.report import Report, plain

    require_plots()
    options = MemoryOptions(
        store=args.store,
        workdir=args.workdir or args.json.parent / "suffolk-bench",
        limits=tuple(args.limits),
        residencies=tuple(args.residency),
        queries=args.queries,
        rounds=args.rounds,
        seed=args.seed,
    )
    results = measure_memory(options)
    report = Report("memory", args.seed, plain(options), results, NOTES, PACKAGES)
    return _finish(args, report, memory_lines(results), memory_panels(results))


def _finish(args: argparse.Namespace, report: Report, lines: list[str], panels: list[Panel]) -> int:
    from benchmarks.plot import write_plot
    from benchmarks.report import write_report

    print("\n".join(lines))
    plot = args.plot or args.json.with_suffix(".png")
    write_report(report, args.json)
    write_plot(plot, f"suffolk bench {report.benchmark}", panels)
    print(f"wrote {args.json} and {plot}")
    return 0
