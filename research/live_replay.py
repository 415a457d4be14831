"""Time in which a live store opens with a log of many tokens."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from research.command import command_parser, run_command
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.documents import Document
from suffolk.serving.store.live_store.identity import log_folder
from suffolk.serving.store.live_store.read_log import read_log
from suffolk.serving.store.live_store.settings import LiveSettings
from suffolk.serving.store.live_store.store import create_live_store, open_live_store

DOCUMENT_TOKENS = 600
CHANGED = 0.05
"""The share of tokens that is random, from the second copy of a text on: repeated text, such as samples of one model."""


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The outcome.

    Attributes:
        tokens, documents, appends: what the log holds; an append has ``documents / appends`` documents.
        log_bytes: size of the log.
        append_seconds: time of all appends, durability "none".
        read_seconds: of opening, the part that reads the log and compares its checksums.
        open_seconds: opening the store: reading, sorting, merging.
        open_cpu_seconds: processor time of opening, of all threads.
        first_draft_seconds: the first draft after opening.
    """

    tokens: int
    documents: int
    appends: int
    log_bytes: int
    append_seconds: float
    read_seconds: float
    open_seconds: float
    open_cpu_seconds: float
    first_draft_seconds: float


def measure_replay(source: Path, folder: Path, tokens: int, batch: int, threads: int = 0) -> ReplayResult:
    """Append ``tokens`` tokens of the text of the datastore ``source`` to a new store in ``folder``, and open it again.

    Args:
        batch: documents of an append, of about 600 tokens each.
    """
    settings = LiveSettings(durability="none", flush_tokens=0, threads=threads)
    with open_datastore(source) as texts:
        size = texts.vocab_size
        documents = [each.tokens for each in texts.documents()]
    began = time.monotonic()
    appended = appends = 0
    with create_live_store(folder / "store", vocab_size=size, settings=settings) as store:
        for piece in _batches(documents, tokens, batch, size):
            appended += store.append_batch(piece).tokens
            appends += 1
        append_seconds, stats = time.monotonic() - began, store.stats()
    began = time.monotonic()
    read_log(log_folder(folder / "store"))
    read_seconds = time.monotonic() - began
    began, worked = time.monotonic(), time.process_time()
    with open_live_store(folder / "store", settings) as store:
        open_seconds, open_cpu_seconds = time.monotonic() - began, time.process_time() - worked
        began = time.monotonic()
        store.draft(documents[0][:20])
        first = time.monotonic() - began
    return ReplayResult(
        tokens=appended,
        documents=stats.documents,
        appends=appends,
        log_bytes=stats.log_bytes,
        append_seconds=append_seconds,
        read_seconds=read_seconds,
        open_seconds=open_seconds,
        open_cpu_seconds=open_cpu_seconds,
        first_draft_seconds=first,
    )


def _batches(
    documents: Sequence[npt.NDArray[np.uint32]], tokens: int, batch: int, size: int
) -> Iterator[list[Document]]:
    random, left = np.random.default_rng(1), tokens
    pending: list[Document] = []
    for copy in range(1 << 20):
        for document in documents:
            ids = (
                document
                if copy == 0
                else np.where(random.random(len(document)) < CHANGED, random.integers(0, size), document)
            )
            for begin in range(0, len(ids), DOCUMENT_TOKENS):
                piece = ids[begin : begin + DOCUMENT_TOKENS][:left]
                pending.append(Document(f"{copy}-{begin}", {}, piece))
                left -= len(piece)
                if len(pending) == batch or left <= 0:
                    yield pending
                    pending = []
                if left <= 0:
                    return


def run(args: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        result = measure_replay(args.source, Path(folder), args.tokens, args.batch, args.threads)
    print(json.dumps(asdict(result), indent=1))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), run, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("live_replay", __doc__, "STORE --tokens 50000000")
    add = parser.add_argument
    add("source", type=Path, metavar="STORE", help="a datastore, whose documents are appended")
    add("--tokens", type=int, default=50_000_000, metavar="N", help="tokens to append (default: %(default)s)")
    add("--batch", type=int, default=16, metavar="N", help="documents of an append (default: %(default)s)")
    add(
        "--threads",
        type=int,
        default=0,
        metavar="N",
        help="threads of the store; 0 is every core (default: %(default)s)",
    )
    add("--folder", type=Path, metavar="DIR", help="where the store is made (default: a temporary folder)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
