"""Writes a larger corpus than there is text for: copies of JSON lines with a share of their words changed.

    python -m benchmarks.enlarge_corpus --copies 9 --output DIR corpus.jsonl.zst ...

Every copy has 2 % of its words (``--changed``) replaced by other words of the same file, drawn at random with a fixed seed, so that
no long passage stands twice. Copy 0 is the text itself.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import zstandard

WORD = re.compile(r"\w+")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.enlarge_corpus", description=__doc__.split("\n")[0])
    parser.add_argument("corpora", nargs="+", type=Path, help=".jsonl.zst files with a field 'text'")
    parser.add_argument("--copies", type=int, required=True, help="how often each file is written")
    parser.add_argument(
        "--changed", type=float, default=0.02, help="share of words changed in each copy (default: %(default)s)"
    )
    parser.add_argument("--output", type=Path, required=True, help="folder to write to")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    tasks = [
        (corpus, copy, options.changed, options.output) for copy in range(options.copies) for corpus in options.corpora
    ]
    with ProcessPoolExecutor(2) as pool:
        size = sum(pool.map(_copy, tasks))
    print(f"{options.output}: {len(tasks)} files, {size / 1e6:,.0f} MB of text")
    return 0


def _copy(task: tuple[Path, int, float, Path]) -> int:
    """Write one copy of one file; bytes of text."""
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
                text = _change(text, words, changed, generator)
            raw = text.encode("utf-8", "replace")
            size += len(raw)
            writer.write(json.dumps({"text": text}).encode() + b"\n")
    return size


def _change(text: str, words: list[str], share: float, generator: random.Random) -> str:
    """``text`` with a share of its words replaced; walks from one replaced word to the next."""
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
    with open(corpus, "rb") as file:
        for line in io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8"):
            yield json.loads(line)["text"]


if __name__ == "__main__":
    raise SystemExit(main())
