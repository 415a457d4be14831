"""Runs a study as a command: an error of the closed set becomes one line on stderr and an exit code. Options that studies share."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Container, Iterable, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import TypeVar

import torch

from suffolk.cli.main import exit_code_of
from suffolk.cli.output_file import require_folder
from suffolk.datastore.checks import check_range, whole_within
from suffolk.datastore.settings import MAX_THREADS
from suffolk.serving.decoding.drafters.drafter_config import DrafterConfig
from suffolk.serving.decoding.drafters.registry import BUILT_IN
from suffolk.serving.decoding.engine.sampling.settings import MAX_SEED

MOST_ROUNDS = 10_000
T = TypeVar("T")


def command_parser(name: str, description: str | None, *examples: str) -> argparse.ArgumentParser:
    """Create the parser of ``python -m research.NAME``, without options.

    Args:
        examples: example argument lists, for the help.
    """
    lines = [f"  python -m research.{name} {words}" for words in examples]
    return argparse.ArgumentParser(
        prog=f"python -m research.{name}",
        description=description,
        epilog="\n".join(["examples:" if len(lines) > 1 else "example:", *lines]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_evidence(parser: argparse.ArgumentParser) -> None:
    """Declare the inputs of a fit: recorded answers, and the datastore and tree size for drafting along them."""
    add = parser.add_argument
    add("--recording", required=True, nargs="+", type=Path, metavar="FILE", help="recorded answers")
    add("--datastore", required=True, metavar="STORE", help="folder of a datastore")
    add("--nodes", type=int, default=64, metavar="N", help="nodes of the largest tree (default: %(default)s)")


def add_seed(parser: argparse.ArgumentParser) -> None:
    """Declare ``--seed``, which ``run_command`` checks."""
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of every random choice (default: %(default)s)"
    )


def check_timing(threads: int, rounds: int) -> None:
    """Raise InvalidArgument if ``--threads`` or ``--rounds`` of a timed comparison is out of its range."""
    check_range("--threads", threads, 1, MAX_THREADS)
    check_range("--rounds", rounds, 1, MOST_ROUNDS)


def cpu_clock() -> float:
    """CPU seconds of the calling thread if torch uses one thread, else wall seconds.

    CPU seconds do not depend on other programs.
    """
    return time.thread_time() if torch.get_num_threads() == 1 else time.perf_counter()


def run_command(
    parser: argparse.ArgumentParser, work: Callable[[argparse.Namespace], int], arguments: Sequence[str] | None
) -> int:
    """Run ``work`` with the parsed ``arguments`` (None: the command line); return its exit code, or the error's."""
    args = parser.parse_args(arguments)

    def checked() -> int:
        if "seed" in args:
            whole_within("--seed", args.seed, 0, MAX_SEED)
        for name in ("json", "plot"):
            require_folder(f"--{name}", getattr(args, name, None))
        return work(args)

    return exit_code_of(checked, "error")


def add_drafter_options(parser: argparse.ArgumentParser, without: Container[str] = ()) -> None:
    """Declare the options of all built-in drafters except ``without``, each option once."""
    entries = [entry for entry in BUILT_IN.values() if entry.name not in without]
    for option in {each.flag: each for entry in entries for each in entry.options}.values():
        if option.kind is bool:
            parser.add_argument(option.flag, action="store_true", help=option.help)
        elif option.repeated:
            parser.add_argument(
                option.flag, type=option.kind, action="append", default=[], metavar=option.metavar, help=option.help
            )
        else:
            parser.add_argument(option.flag, type=option.kind, metavar=option.metavar, help=option.help)


def read_drafter_config(args: argparse.Namespace) -> DrafterConfig:
    """Return the drafters that the options in ``args`` select. Raises the errors of ``DrafterConfig``."""
    entries = [entry for entry in BUILT_IN.values() if entry.needs_option]
    names = {option.name for entry in entries for option in entry.options}
    return DrafterConfig(dtype=args.dtype, **{name: getattr(args, name) for name in names if hasattr(args, name)})


def alternating(items: Iterable[T], group_of: Callable[[T], str]) -> list[T]:
    """``items`` with alternating groups: the first item of each group, then the second of each, and so on."""
    groups: dict[str, list[T]] = {}
    for each in items:
        groups.setdefault(group_of(each), []).append(each)
    return [each for each in chain.from_iterable(zip_longest(*groups.values())) if each is not None]
