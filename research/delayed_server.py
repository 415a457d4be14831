"""Runs a draft service with a delay, which simulates a network on one machine."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from research.command import command_parser, run_command
from suffolk.datastore.context_query import ContextQuery
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.retriever import Match, Retriever
from suffolk.serving.net.endpoint import Endpoint
from suffolk.serving.net.server import run_until_signal
from suffolk.serving.store.draft_service.server import DraftServer, DraftServerConfig


class DelayedRetriever(Retriever):
    """Wraps ``inner`` and delays a ``share`` of its drafts by ``seconds``. As thread-safe as ``inner``."""

    def __init__(self, inner: Retriever, seconds: float, share: float = 1.0) -> None:
        self._inner = inner
        self._seconds, self._share = seconds, share

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def vocab_size(self) -> int:
        return self._inner.vocab_size

    def find_matches(self, query: ContextQuery) -> list[Match]:
        return self._inner.find_matches(query)

    def find_drafts(self, query: ContextQuery) -> Sequence[DraftTree]:
        if random.random() < self._share:
            time.sleep(self._seconds)
        return self._inner.find_drafts(query)

    def tokenizer(self) -> Tokenizer | None:
        return self._inner.tokenizer()

    def info(self) -> dict[str, Any]:
        return self._inner.info()

    def close(self) -> None:
        self._inner.close()


def delayed_server(store: Path, delay_ms: float, share: float = 1.0) -> list[str]:
    """Return the command that runs this server in its own process, for ``served``."""
    words = [str(store), "--delay-ms", str(delay_ms), "--share", str(share)]
    return [sys.executable, "-m", "research.delayed_server", *words]


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(args: argparse.Namespace) -> int:
    """Serve until a signal arrives; return the exit code."""
    if not 0 <= args.delay_ms <= 10_000:
        raise InvalidArgument(f"--delay-ms is {args.delay_ms:g}; it must be between 0 and 10000")
    store = DelayedRetriever(open_datastore(args.store), args.delay_ms / 1e3, args.share)
    run_until_signal(DraftServer(DraftServerConfig((Endpoint("127.0.0.1", 0),)), {"store": store}))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("delayed_server", __doc__, "STORE --delay-ms 20")
    parser.add_argument("store", type=Path, metavar="STORE", help="folder of a datastore")
    parser.add_argument("--delay-ms", type=float, default=0.0, help="delay of every draft call (default: none)")
    parser.add_argument("--share", type=float, default=1.0, help="share of calls that are delayed (default: all)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
