"""Check a datastore for damage. The exit code is 0 if it is sound, 1 if it is damaged, and 2 if it
cannot be checked."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

from suffolk.build_index.report import count
from suffolk.cli.options import setting
from suffolk.cli.options.setting import REQUIRED, argument, option
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import Corruption, InvalidArgument
from suffolk.serving.transport.url import is_url

EXAMPLES = """
suffolk verify STORE                     read every byte once and compare the checksums
suffolk verify --depth headers STORE     only what opening checks: instant
suffolk verify --depth full STORE        also prove that the suffixes are complete and in order"""


@dataclass(frozen=True, kw_only=True)
class Options(setting.Options):
    store: str = argument(REQUIRED, "a datastore's folder", metavar="STORE")
    depth: str = option("checksums", "how thorough", choices=("headers", "checksums", "full"))


def run(options: Options) -> int:
    if is_url(options.store):
        raise InvalidArgument(f"{options.store}: verify needs the datastore's folder; run it where that folder is")
    start = time.monotonic()
    try:
        with open_datastore(options.store) as store:
            store.verify(options.depth, _show if sys.stderr.isatty() else None)
            facts = store.info()
    except Corruption as error:
        print(f"suffolk: damaged: {error}", file=sys.stderr)
        return 1
    print(
        f"{options.store}: sound ({options.depth}; generation {facts['generation']}, {count(len(facts['segments']), 'segment')}, "
        f"{facts['bytes']:,} bytes, {time.monotonic() - start:.1f} s)"
    )
    return 0


def _show(name: str, share: float) -> None:
    print(f"\r{name} {share:4.0%}", end="\n" if share >= 1 else "", file=sys.stderr, flush=True)
