"""Runs a study as a command: an error of the closed set becomes one line on stderr and an exit code."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from suffolk.cli.output_file import require_folder
from suffolk.datastore.errors import SuffolkError
from suffolk.serving.engine.checks import whole_within
from suffolk.serving.engine.sampling.settings import MAX_SEED
from suffolk.serving.transport.limits import MAX_THREADS, check_range

MOST_ROUNDS = 10_000


def command_parser(name: str, description: str | None, *examples: str) -> argparse.ArgumentParser:
    """The parser of ``python -m research.NAME``, without options yet.

    Args:
        examples: arguments of one example each, for the help.
    """
    lines = [f"  python -m research.{name} {words}" for words in examples]
    return argparse.ArgumentParser(
        prog=f"python -m research.{name}",
        description=description,
        epilog="\n".join(["examples:" if len(lines) > 1 else "example:", *lines]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_evidence(parser: argparse.ArgumentParser) -> None:
    """Declare the inputs of a fit: recorded answers, and the datastore and tree size to draft along them with."""
    add = parser.add_argument
    add("--recording", required=True, nargs="+", type=Path, metavar="FILE", help="recorded answers")
    add("--datastore", required=True, metavar="STORE", help="folder of a datastore")
    add("--nodes", type=int, default=64, metavar="N", help="of the largest tree (default: %(default)s)")


def add_seed(parser: argparse.ArgumentParser) -> None:
    """Declare ``--seed``, which ``run_command`` checks."""
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of every random choice (default: %(default)s)"
    )


def check_timing(threads: int, rounds: int) -> None:
    """Raise InvalidArgument if ``--threads`` or ``--rounds`` of a timed comparison is out of its range."""
    check_range("--threads", threads, 1, MAX_THREADS)
    check_range("--rounds", rounds, 1, MOST_ROUNDS)


def cpu_clock() -> float:
    """CPU seconds of the calling thread if torch has no other, which other programs do not disturb; else wall seconds."""
    return time.thread_time() if torch.get_num_threads() == 1 else time.perf_counter()


def run_command(
    parser: argparse.ArgumentParser, work: Callable[[argparse.Namespace], int], arguments: Sequence[str] | None
) -> int:
    """Run ``work`` with the options that ``parser`` reads from ``arguments`` (None: the command line); its exit code, or the
    error's.
    """
    args = parser.parse_args(arguments)
    try:
        if "seed" in args:
            whole_within("--seed", args.seed, 0, MAX_SEED)
        for name in ("json", "plot"):
            require_folder(f"--{name}", getattr(args, name, None))
        code = work(args)
        sys.stdout.flush()
        return code
    except SuffolkError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output went away: there is no one to say it to
        _silence_stdout()
        return 141
    except OSError as error:  # what the file system refuses, such as output to a full disk
        print(
            f"error: {' '.join(str(error).split())}; check the path, its permissions and the free space",
            file=sys.stderr,
        )
        _silence_stdout()
        return 2


def _silence_stdout() -> None:
    """Discard unwritable output, or the interpreter would complain at exit."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()  # what was measured is still wanted where it was another file that failed
    with contextlib.suppress(OSError):  # a stdout that is no file needs nothing
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
