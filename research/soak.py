"""Watches the memory of a draft service with a live datastore under hours of valid and invalid calls."""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from research.command import add_seed, command_parser, run_command
from research.soak_calls import APPENDED, Caller
from suffolk.benchmarks.processes import family_memory
from suffolk.benchmarks.report import make_report, write_report
from suffolk.build_index.builder import build
from suffolk.build_index.options import BuildOptions
from suffolk.datastore.errors import InvalidArgument, Unavailable
from suffolk.serving.net.access_file import add_token
from suffolk.serving.net.identity import Role
from suffolk.serving.store.live_store.store import create_live_store

VOCABULARY = 1000
LIVE_BYTES = 1 << 20
"""Memory of the live documents, filled before the first call."""
TOKEN_BYTES = 6
"""Least memory of a live token."""
SAMPLE_SECONDS = 5.0
NOTES = (
    "each call is of a random kind",
    "growth: median memory in the last tenth of the time after the warm-up, over that in its first tenth",
)


@contextmanager
def serving(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """A server's process with a live and a fixed datastore, and its gRPC and HTTP addresses."""
    np.save(folder / "tokens.npy", np.random.default_rng(0).integers(0, VOCABULARY, 200_000, np.int32))
    build(BuildOptions(corpora=(str(folder / "tokens.npy"),), output=folder / "files", vocab_size=VOCABULARY))
    create_live_store(folder / "chat", vocab_size=VOCABULARY).close()
    access = folder / "access.toml"
    access.write_text("[tenant.full]\ncalls_per_second = 0\n")
    roles = {"acme": {"acme": Role.ADMIN}, "full": {"full": Role.READ}, "operator": {"*": Role.READ}}
    for name, found in roles.items():
        (folder / name).write_text(add_token(access, name, found))
    stores = (
        f"acme/files={folder / 'files'}",
        "--live",
        f"acme/chat={folder / 'chat'}",
        "--set",
        f"live_bytes={LIVE_BYTES}",
    )
    listen = ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--access", str(access))
    command = (sys.executable, "-m", "suffolk", "serve", *stores, *listen)
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found_line = re.search(r"on grpc (\S+), http (\S+)", line)
        if found_line is None:
            raise Unavailable(f"the server did not start: {line}{(folder / 'log').read_text()[-300:]}")
        yield process, found_line[1], found_line[2]
    finally:
        process.terminate()
        process.wait()


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Memory by time, and the answers by call."""
    samples: list[tuple[float, int]] = []
    answers: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name, serving(Path(name)) as (process, host, http):
        random = np.random.default_rng(args.seed)
        with closing(Caller(host, http, Path(name), VOCABULARY, random)) as caller:
            for _ in range(LIVE_BYTES // (TOKEN_BYTES * APPENDED)):
                caller.append_alone()
            begin = time.monotonic()
            due, sample_due, line_due = begin, begin, begin
            while (now := time.monotonic()) < begin + 60 * args.minutes:
                if process.poll() is not None:
                    raise Unavailable(
                        f"the server ended with {process.returncode}: {(Path(name) / 'log').read_text()[-300:]}"
                    )
                if now >= sample_due:
                    sample_due += SAMPLE_SECONDS
                    samples.append((now - begin, family_memory(process.pid)[0]))
                if now >= line_due:
                    line_due += 60.0
                    print(
                        f"{(now - begin) / 60:6.1f} min  {samples[-1][1] / 1e6:8.2f} MB  {answers.total():7} calls",
                        flush=True,
                    )
                answers[" ".join(caller.call()).strip()] += 1
                due = max(due + 1 / args.rate, now - 1.0)
                time.sleep(max(0.0, due - time.monotonic()))
    after = [size for seconds, size in samples if seconds >= 60 * args.warmup]
    tenth = max(1, len(after) // 10)
    first, last = statistics.median(after[:tenth]), statistics.median(after[-tenth:])
    return {
        "samples": samples,
        "answers": dict(answers),
        "first_bytes": first,
        "last_bytes": last,
        "growth": last / first - 1,
    }


def run(args: argparse.Namespace) -> int:
    if not 0 <= args.warmup < args.minutes or not args.rate > 0:
        raise InvalidArgument(f"--warmup {args.warmup} must be 0 to --minutes {args.minutes}, and --rate above 0")
    results = measure(args)
    for name, count in sorted(results["answers"].items()):
        print(f"{count:8} {name}")
    print(
        f"{results['first_bytes'] / 1e6:.2f} MB after the warm-up, {results['last_bytes'] / 1e6:.2f} MB at the end: ",
        end="",
    )
    print(f"{results['growth']:+.2%}")
    if args.json:
        settings = {name: str(value) for name, value in vars(args).items()}
        write_report(
            make_report("soak", args.seed, settings, results, NOTES, ("numpy", "grpcio", "starlette")), args.json
        )
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), run, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("soak", __doc__, "--minutes 30 --json soak.json")
    add = parser.add_argument
    add("--minutes", type=float, default=30.0, metavar="N", help="length (default: %(default)s)")
    add("--warmup", type=float, default=5.0, metavar="N", help="minutes that do not count (default: %(default)s)")
    add("--rate", type=float, default=20.0, metavar="N", help="calls a second (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="write the results here")
    add_seed(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
