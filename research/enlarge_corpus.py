"""Enlarges a corpus with copies of its JSON lines in which a share of the words is changed.

In each copy, 2 % of the words (``--changed``) are replaced with other words of the same file, chosen with a fixed seed.
So no long passage repeats. Copy 0 is the unchanged text. Other copies omit the characters before the first word.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from multiprocessing import Pool
from pathlib import Path

import zstandard

from research.command import command_parser, run_command
from suffolk.benchmarks.folder import new_folder
from suffolk.build_index.input_file import InputFile, read_chunks
from suffolk.build_index.read_lines import read_lines
from suffolk.datastore.checks import check_range
from suffolk.datastore.errors import InvalidArgument, NotFound

MOST_COPIES = 1000
"""Copy numbers have three digits."""
LEAST_CHANGED = 1e-6
WORD = re.compile(r"\w+")


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(args: argparse.Namespace) -> int:
    check_range("--copies", args.copies, 1, MOST_COPIES)
    if not LEAST_CHANGED <= args.changed <= 1:
        raise InvalidArgument(f"--changed is {args.changed:g}; it must be between {LEAST_CHANGED:g} and 1")
    for corpus in args.corpora:
        if not corpus.is_file():
            raise NotFound(f"corpus {corpus} is not a file; name .jsonl.zst files")
    there = args.output.exists()
    try:
        size = _write_copies(args)
    except BaseException:
        if not there:
            with contextlib.suppress(OSError):  # not created, or another process wrote into it
                args.output.rmdir()
        raise
    print(f"{args.output}: {args.copies * len(args.corpora)} files, {size / 1e6:,.0f} MB of text")
    return 0


def _write_copies(args: argparse.Namespace) -> int:
    """Write all copies or none; return the bytes of text."""
    with new_folder(args.output) as unfinished:
        tasks = [(corpus, copy, args.changed, unfinished) for copy in range(args.copies) for corpus in args.corpora]
        # Only this process handles Ctrl-C. Leaving the pool ends its processes without output.
        with Pool(2, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
            try:
                size = sum(pool.imap(_copy, tasks))
            except Exception:
                pool.close()  # terminating busy processes can wait forever
                pool.join()
                raise
        for path in unfinished.iterdir():
            path.replace(args.output / path.name)
    return size


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("enlarge_corpus", __doc__, "--copies 9 --output DIR corpus.jsonl.zst ...")
    add = parser.add_argument
    add("corpora", nargs="+", type=Path, help=".jsonl.zst files with a field 'text'")
    add("--copies", type=int, required=True, help="number of copies of each file")
    add("--changed", type=float, default=0.02, help="share of words changed in each copy (default: %(default)s)")
    add("--output", type=Path, required=True, help="folder to write to")
    return parser


def _copy(task: tuple[Path, int, float, Path]) -> int:
    """Write one copy of one file; return the bytes of text."""
    corpus, copy, changed, output = task
    generator = random.Random(f"{corpus.name} {copy}")
    size = 0
    words: list[str] = []
    with (
        open(output / f"{copy:03d}-{corpus.name}", "wb") as file,
        zstandard.ZstdCompressor(1).stream_writer(file) as writer,
    ):
        for text in _texts(corpus):
            if copy > 0:
                words = [*WORD.findall(text[:4096]), *words[:4096]]
                if not words:
                    continue
                text = _change(text, words, changed, generator)
            raw = text.encode("utf-8", "replace")
            size += len(raw)
            writer.write(json.dumps({"text": text}).encode() + b"\n")
    return size


def _change(text: str, words: list[str], share: float, generator: random.Random) -> str:
    """Return ``text`` with a share of its words replaced. The loop jumps from one replaced word to the next."""
    pieces: list[str] = []
    end = 0
    matches = [match.span() for match in WORD.finditer(text)]
    at = int(generator.expovariate(share))
    while at < len(matches):
        pieces += [text[end : matches[at][0]], generator.choice(words)]
        end = matches[at][1]
        at += 1 + int(generator.expovariate(share))
    return "".join([*pieces, text[end:]])


def _texts(corpus: Path) -> Iterator[str]:
    for lines, _ in read_lines(str(corpus), read_chunks(InputFile(str(corpus), "lines", "zstandard", 0, 0, True))):
        for number, line in enumerate(lines.data.split(b"\n"), lines.first_line):
            if line.strip():
                yield _text(line, f"corpus {corpus} line {number}")


def _text(line: bytes, place: str) -> str:
    try:
        text = json.loads(line)["text"]
    except (ValueError, KeyError, TypeError):
        text = None
    if not isinstance(text, str):
        raise InvalidArgument(f"{place} has no text in 'text'; give one JSON object a line")
    return text


if __name__ == "__main__":
    sys.exit(main())
