"""Compares the latency of drafts in the C++ core of checkouts of Suffolk, by quantiles up to p99.9.

A process of each checkout in turn drafts for all contexts, with the whole datastore in memory or a share of it. In memory, the time
of a context is the median of the rounds. With less memory all times count, since each call waits for other pages.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from research.command import add_seed, command_parser, run_command
from suffolk.benchmarks.report import make_report, write_report
from suffolk.benchmarks.retrieval.contexts import sample_files
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import Internal
from suffolk.datastore.text_table import format_table

EXAMPLES = ("STORE --contexts HELD_OUT.jsonl --checkouts OLD_CHECKOUT . --memory 1 0.25 --json latency.json",)
QUANTILES = (50, 90, 99, 99.9)
HEADERS = ("memory, checkout", "part", *(f"p{each}" for each in QUANTILES), "mean")
NOTES = ("microseconds in the C++ core, one thread, contexts of texts outside the corpus, 64 nodes; equal answers",)


def run_once(checkout: Path, settings: dict[str, Any]) -> tuple[npt.NDArray[np.float64], str]:
    """Return the seconds of lookups and drafts, and a digest of the answers. Raises Internal if the process fails."""
    script = Path(__file__).resolve().with_name("draft_latency_worker.py")
    command = [sys.executable, str(script), json.dumps(settings)]
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise Internal(f"checkout {checkout}: its process ended with {done.returncode}; see its error above")
    found = json.loads(done.stdout)
    if Path(found["package"]) != checkout / "suffolk" / "__init__.py":
        raise Internal(f"checkout {checkout}: the process imported {found['package']}; uninstall that package")
    return np.load(settings["output"]), found["digest"]


def measure(args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Return the quantiles of each share of memory, checkout and part. Raises Internal if answers differ."""
    with open_datastore(args.store) as store:
        size = store.info()["bytes"]
        sampled = sample_files(store, args.contexts, args.queries, 16, 10, args.seed)
    found = []
    for share in args.memory:
        contexts = sampled.first(args.queries if share == 1 else args.limited_queries).contexts
        (folder / "contexts.json").write_text(json.dumps(contexts))
        settings = {"store": str(args.store), "contexts": str(folder / "contexts.json"), "min_match": args.min_match}
        settings |= {"limit_bytes": None if share == 1 else int(share * size), "seed": args.seed}
        settings |= {"output": str(folder / "seconds.npy")}
        runs = [[run_once(checkout.resolve(), settings) for checkout in args.checkouts] for _ in range(args.rounds)]
        if len({digest for run in runs for _, digest in run}) != 1:
            raise Internal("the checkouts' answers differ")
        for place, checkout in enumerate(args.checkouts):
            times = [run[place][0] * 1e6 for run in runs]
            lookups, drafts = np.median(times, axis=0) if share == 1 else np.concatenate(times, axis=1)
            for part, each in (("lookup", lookups), ("draft", drafts), ("both", lookups + drafts)):
                quantiles = dict(zip(map(str, QUANTILES), np.percentile(each, QUANTILES).tolist(), strict=True))
                found.append(
                    {"memory": share, "checkout": str(checkout), "part": part, **quantiles, "mean": each.mean()}
                )
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return run_command(_parser(), _run, argv)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("draft_latency", __doc__, *EXAMPLES)
    add = parser.add_argument
    add("store", type=Path, metavar="STORE", help="folder of a datastore")
    add("--contexts", type=Path, nargs="+", required=True, metavar="FILE", help="texts outside its corpus")
    add("--checkouts", type=Path, nargs="+", default=[Path()], metavar="DIR", help="repositories (default: this one)")
    add("--memory", type=float, nargs="+", default=[1.0], metavar="SHARE", help="of the datastore (default: 1)")
    add("--queries", type=int, default=20_000, metavar="N", help="contexts (default: %(default)s)")
    add("--limited-queries", type=int, default=2000, metavar="N", help="with less memory (default: %(default)s)")
    add("--min-match", type=int, default=2, metavar="N", help="tokens of the least match (default: %(default)s)")
    add("--rounds", type=int, default=5, metavar="N", help="processes of each checkout (default: %(default)s)")
    add("--json", type=Path, required=True, metavar="FILE", help="file for the results")
    add_seed(parser)
    return parser


def _run(args: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder:
        found = measure(args, Path(folder))
    rows = [
        [f"{each['memory']:.0%}, {each['checkout']}", each["part"], *(each[str(q)] for q in QUANTILES), each["mean"]]
        for each in found
    ]
    print(format_table(HEADERS, rows))
    settings = {name: str(value) for name, value in vars(args).items()}
    write_report(make_report("draft latency", args.seed, settings, {"latency": found}, NOTES), args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
