"""Check a datastore for damage. Exit code 0: sound; 1: damaged; 2: it cannot be checked."""

from __future__ import annotations

import argparse
import sys
import time

from suffolk.build_index.report import count
from suffolk.cli.filled import filled
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import Corruption, InvalidArgument
from suffolk.serving.transport.url import is_url

EPILOG = """examples:
  suffolk verify STORE                     read every byte once and compare the checksums
  suffolk verify --depth headers STORE     only what opening checks: instant
  suffolk verify --depth full STORE        also prove that the suffixes are complete and in order"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("store", type=filled, metavar="STORE", help="a datastore's folder")
    parser.add_argument(
        "--depth",
        choices=("headers", "checksums", "full"),
        default="checksums",
        help="how thoroughly (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    if is_url(args.store):
        raise InvalidArgument(f"{args.store}: verify needs the datastore's folder; run it where that folder is")
    start = time.monotonic()
    try:
        with open_datastore(args.store) as store:
            store.verify(args.depth, _show if sys.stderr.isatty() else None)
            facts = store.info()
    except Corruption as error:
        print(f"suffolk: damaged: {error}", file=sys.stderr)
        return 1
    print(
        f"{args.store}: sound ({args.depth}; generation {facts['generation']}, {count(len(facts['segments']), 'segment')}, "
        f"{facts['bytes']:,} bytes, {time.monotonic() - start:.1f} s)"
    )
    return 0


def _show(name: str, share: float) -> None:
    print(f"\r{name} {share:4.0%}", end="\n" if share >= 1 else "", file=sys.stderr, flush=True)
