"""Compares builds, appends and drafts of two checkouts of Suffolk: two processes take turns piece by piece, on the same documents.

The times are processor times, so other programs change them little. Each checkout needs its compiled core in datastore/. With
the same checkout twice, the differences are noise.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from research.command import MOST_ROUNDS, add_seed, command_parser, run_command
from research.compare_commits import NEW, OLD, Side
from suffolk.benchmarks.report import make_report, write_report
from suffolk.datastore.checks import check_range
from suffolk.datastore.errors import InvalidArgument, NotFound
from suffolk.datastore.text_table import format_table
from suffolk.datastore.tokenizer import load_tokenizer

EXAMPLES = ("OLD_CHECKOUT . --tokenizer MODEL --corpus corpus/ --json compared.json",)
PIECE = {"append": 200, "draft": 2_000, "build": 1}
"""Number of documents, contexts or builds that one piece handles."""
DOCUMENT_TOKENS = 300
NOTES = ("new/old: median of the ratios of the pieces' processor seconds; in brackets: 95 % interval of the median",)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(args: argparse.Namespace) -> int:
    check_range("--rounds", args.rounds, 1, MOST_ROUNDS)
    check_range("--builds", args.builds, 1, MOST_ROUNDS)
    documents, order = _documents(args.corpus, args.tokenizer), random.Random(args.seed)
    seconds: dict[str, dict[str, list[float]]] = {work: {OLD: [], NEW: []} for work in PIECE}
    equal = True
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        options = {"corpus": str(args.corpus.resolve()), "tokenizer": args.tokenizer, "documents": documents}
        sides: dict[str, Side] = {}
        for name, checkout in ((OLD, args.old), (NEW, args.new)):
            (own := Path(folder, name)).mkdir()
            side = Side(checkout, options | {"folder": str(own)}, "compare_stores_worker.py")
            sides[name] = stack.enter_context(side)
            side.wait_until_ready()
        for turn in range(args.rounds):
            for work in [*("append", "draft"), *(["build"] if turn < args.builds else [])]:
                replies = {}
                for name in order.sample([OLD, NEW], 2):
                    replies[name] = sides[name].ask(work, count=PIECE[work], turn=turn)
                    seconds[work][name].append(replies[name]["seconds"])
                equal = equal and replies[OLD]["found"] == replies[NEW]["found"]
    rows = []
    for work, sample in seconds.items():
        ratios = np.asarray(sample[NEW]) / np.asarray(sample[OLD])
        middle, low, high = _median_with_interval(ratios, args.seed)
        spans = (1e3 * float(np.median(sample[name])) / PIECE[work] for name in (OLD, NEW))
        rows.append((work, len(ratios), *spans, f"{middle:.3f} ({low:.3f} to {high:.3f})"))
    print(format_table(("work", "pieces", "ms old", "ms new", "new/old"), rows), *NOTES, sep="\n")
    print("results: equal" if equal else "results: they differ")
    if args.json is not None:
        settings = {name: str(value) for name, value in vars(args).items()}
        results = {"equal": equal, "processor_seconds": seconds}
        write_report(make_report("compare stores", args.seed, settings, results, NOTES), args.json)
    return 0 if equal else 1


def _documents(corpus: Path, tokenizer: str) -> list[list[int]]:
    """The token ids of the corpus, in documents of ``DOCUMENT_TOKENS`` ids."""
    if not corpus.exists():
        raise NotFound(f"--corpus {corpus}: there is no such file or folder; name texts to build from")
    encode, ids = load_tokenizer(tokenizer).encode, list[int]()
    for path in sorted(each for each in (corpus.rglob("*") if corpus.is_dir() else [corpus]) if each.is_file()):
        ids += encode(path.read_text(errors="replace"), add_special_tokens=False).ids
    documents = [
        ids[start : start + DOCUMENT_TOKENS] for start in range(0, len(ids) - DOCUMENT_TOKENS, DOCUMENT_TOKENS)
    ]
    if not documents:
        raise InvalidArgument(f"--corpus {corpus} has {len(ids)} tokens; give more than {DOCUMENT_TOKENS}")
    return documents


def _median_with_interval(values: np.ndarray, seed: int) -> tuple[float, float, float]:
    """The median, and its 95 % interval by the bootstrap."""
    samples = np.random.default_rng(seed).choice(values, (2_000, len(values)))
    low, high = np.quantile(np.median(samples, axis=1), (0.025, 0.975))
    return float(np.median(values)), float(low), float(high)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("compare_stores", __doc__, *EXAMPLES)
    add = parser.add_argument
    add("old", type=Path, metavar="OLD", help="root of the old checkout")
    add("new", type=Path, metavar="NEW", help="root of the new checkout")
    add("--tokenizer", required=True, help="Hugging Face folder")
    add("--corpus", type=Path, required=True, help="file or folder of texts to build from, append and draft for")
    add("--rounds", type=int, default=100, metavar="N", help="pieces of appends and drafts (default: %(default)s)")
    add("--builds", type=int, default=8, metavar="N", help="builds of each checkout (default: %(default)s)")
    add_seed(parser)
    add("--json", type=Path, help="file for all numbers")
    return parser


if __name__ == "__main__":
    sys.exit(main())
