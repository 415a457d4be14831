"""Measure retrieval, counting, building, decoding and memory, each beside its yardstick, in one run.

Every measurement prints tables and writes a JSON file (machine, versions, commit, seed, command line) and a plot."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from types import ModuleType

from suffolk.cli.output_file import plot_beside

EPILOG = """examples:
  suffolk bench retrieval STORE --against draftretriever --grpc --json retrieval.json
  suffolk bench counts STORE --json counts.json
  suffolk bench build --tokenizer MODEL_FOLDER src/ --json build.json
  suffolk bench decode --model MODEL_FOLDER --datastore STORE --prompts prompts/ --limit 10 --json decode.json
  suffolk bench batch --model MODEL_FOLDER --datastore STORE --prompts prompts/ --json batch.json
  suffolk bench memory STORE --limits 1 0.5 0.2 --json memory.json
  suffolk bench hybrid --model MODEL_FOLDER --datastore STORE --prompts prompts/ --limit 8 --output results/

'suffolk bench MEASUREMENT --help' shows its options. The extra packages: pip install '.[bench]'"""

MEASUREMENTS = {
    "retrieval": "latency of lookups and drafts, in-process and over gRPC",
    "counts": "counting and bytes a token, beside infini-gram",
    "decode": "plain decoding against each drafter",
    "batch": "throughput of the engine by requests at once",
    "build": "throughput and memory of building, and of sorting alone",
    "memory": "a datastore larger than memory: cold start, latency, page faults",
    "hybrid": "one tree of all sources against each source alone, resumable",
}
"""Name -> one line of help. Each is a module here with ``EXAMPLES``, ``add_arguments(parser)`` and ``run(args) -> int``."""
INTO_FOLDERS = ("hybrid",)
"""Measurements that write several files into the folder of their option ``--output``, in place of ``--json`` and ``--plot``."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the measurements and their options."""
    parser.epilog = EPILOG
    measurements = parser.add_subparsers(title="measurements", metavar="MEASUREMENT", required=True, dest="measurement")
    for name, summary in MEASUREMENTS.items():
        module = _module(name)
        measurement = measurements.add_parser(
            name,
            help=summary,
            description=module.__doc__,
            epilog="\n".join(["examples:", *(f"  suffolk bench {name} {words}" for words in module.EXAMPLES)]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(measurement)
        if name not in INTO_FOLDERS:
            _add_files(measurement, name)
        measurement.add_argument(
            "--seed", type=int, default=0, metavar="N", help="of every random choice (default: %(default)s)"
        )


def run(args: argparse.Namespace) -> int:
    """Run one measurement; returns the exit code."""
    from suffolk.serving.engine.loop.checks import whole_within
    from suffolk.serving.engine.sampling.settings import MAX_SEED

    whole_within("--seed", args.seed, 0, MAX_SEED)
    if "json" in args:
        args.plot = plot_beside(args.json, args.plot)
    return int(_module(args.measurement).run(args))


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{name}")


def _add_files(parser: argparse.ArgumentParser, name: str) -> None:
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
