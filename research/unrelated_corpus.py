"""Makes a corpus unlike any prompt: random words in random sentences, and logs of numbers.

Drafts from it should cost almost nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from research.command import add_seed, command_parser, run_command
from suffolk.benchmarks.folder import new_folder, writing
from suffolk.datastore.errors import InvalidArgument

LEAST_MEGABYTES, MOST_MEGABYTES = 1e-6, 1e6
_STARTS = ("b", "dr", "f", "gn", "h", "kl", "m", "pf", "qu", "r", "schw", "t", "v", "xh", "zw")
_MIDDLES = ("a", "ae", "e", "ie", "o", "oe", "u", "ui", "y")
_ENDS = ("bus", "ch", "dis", "gk", "lum", "mpf", "nt", "orum", "rx", "ss", "tz", "x")
_WORDS, _LINES = 20_000, 60


def documents(size: int, seed: int) -> Iterator[str]:
    """Yield texts of at least ``size`` characters in total, alternating sentences and logs."""
    rng = np.random.default_rng(seed)
    words = np.array([_word(rng) for _ in range(_WORDS)])
    written = 0
    while written < size:
        for make in (_sentences, _log):
            text = make(rng, words)
            written += len(text)
            yield text


def _word(rng: np.random.Generator) -> str:
    return "".join(str(rng.choice(part)) for _ in range(int(rng.integers(1, 3))) for part in (_STARTS, _MIDDLES, _ENDS))


def _sentences(rng: np.random.Generator, words: np.ndarray) -> str:
    lines = (words[rng.zipf(1.3, 12) % _WORDS] for _ in range(_LINES))
    return "".join(" ".join(line).capitalize() + ".\n" for line in lines)


def _log(rng: np.random.Generator, words: np.ndarray) -> str:
    rows = zip(rng.integers(0, 1 << 62, _LINES), rng.normal(0, 1e3, _LINES), rng.choice(words, _LINES), strict=True)
    return "".join(f"{number:016x}|{word}|{value:+.7e}\n" for number, value, word in rows)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(args: argparse.Namespace) -> int:
    if not LEAST_MEGABYTES <= args.megabytes <= MOST_MEGABYTES:  # also rejects nan
        raise InvalidArgument(
            f"--megabytes is {args.megabytes:g}; it must be between {LEAST_MEGABYTES:g} and {MOST_MEGABYTES:g}"
        )
    written = size = 0
    with new_folder(args.output.parent) as folder, writing(args.output):
        unfinished = folder / "corpus"
        with unfinished.open("w", encoding="utf-8") as file:
            for text in documents(int(args.megabytes * 1e6), args.seed):
                file.write(json.dumps({"text": text}) + "\n")
                written, size = written + 1, size + len(text)
        unfinished.replace(args.output.resolve())
    print(f"{args.output}: {written:,} documents, {size / 1e6:,.2f} MB of text")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("unrelated_corpus", __doc__, "--output corpus.jsonl --megabytes 20")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="a .jsonl file")
    parser.add_argument(
        "--megabytes", type=float, default=20.0, metavar="N", help="megabytes of text (default: %(default)s)"
    )
    add_seed(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
