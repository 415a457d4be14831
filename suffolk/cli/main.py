"""The ``suffolk`` command: finds the subcommand, runs it, and turns errors into one line and an honest exit code."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from suffolk.cli.drafter_options import add_plugin_options
from suffolk.cli.option_names import name_options
from suffolk.datastore.errors import SuffolkError
from suffolk.datastore.version import __version__

COMMANDS = {
    "build": "build a datastore from corpora",
    "info": "show what a datastore holds",
    "verify": "check a datastore for damage",
    "lookup": "look a text up in a datastore",
    "delete": "delete documents from a datastore",
    "compact": "merge a datastore's segments and drop what is deleted",
    "serve": "serve datastores over gRPC",
    "client": "ask a draft service",
    "generate": "generate text with drafts",
    "worker": "decode for many callers over gRPC",
    "calibration": "show how well it is known what drafts are worth",
    "replay": "let drafters draft along recorded texts, to choose among them",
    "profile": "measure what a model's passes cost on this device",
    "plan": "plan a hierarchy of drafters from measured costs and rates",
    "train": "train a draft head on text, behind a model that stays as it is",
    "bench": "measure retrieval and decoding",
}
"""Subcommand -> one line of help. Each is a module of suffolk.cli with ``add_arguments(parser)`` and ``run(args) -> int``."""

EXAMPLES = """examples:
  suffolk build --tokenizer MODEL_FOLDER --output STORE corpus/ more.jsonl.zst
  suffolk info STORE
  suffolk lookup STORE "def __init__(self"
  suffolk serve STORE --listen 127.0.0.1:7700
  suffolk generate --model MODEL_FOLDER --datastore grpc://127.0.0.1:7700/STORE "Write a sort function."
  suffolk worker --model MODEL_FOLDER --datastore STORE --listen 127.0.0.1:7710

'suffolk COMMAND --help' shows the options of a command and examples."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, without all its options before."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"suffolk: {' '.join(message.split())}; see '{self.prog} --help'\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code: 0 done, 1 fault of ours or damage found, 2 bad input, 130 interrupted."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not _open_streams():
        return 2
    parser: argparse.ArgumentParser = Parser()
    try:
        parser = build_parser(arguments)
        if not arguments:
            parser.print_help()
            return 0
        args = _parse(parser, arguments)
        code = int(args.run(args))
        sys.stdout.flush()
        return code
    except SuffolkError as error:
        print(f"suffolk: {name_options(' '.join(str(error).split()), parser)}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as interrupt:
        print(" ".join(["suffolk: interrupted", *map(str, interrupt.args)]), file=sys.stderr)
        return 130
    except (
        BrokenPipeError
    ):  # the reader of our output went away (suffolk info | head): nothing to say, and no one to say it to
        _silence_stdout()
        return 141
    except OSError as error:  # what the file system refuses, such as output to a full disk
        print(f"suffolk: {error}; check the path, its permissions and the free space", file=sys.stderr)
        _silence_stdout()
        return 2


def build_parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """The whole parser, with the options of the command that begins ``arguments`` alone: importing all of them would load torch to
    print a version. Raises as ``add_plugin_options``."""
    command = arguments[0] if arguments else None
    parser = Parser(
        prog="suffolk",
        description="Faster decoding from text you already have.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"suffolk {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        if name != command:
            subparsers.add_parser(name, help=summary)
            continue
        module = importlib.import_module(f"suffolk.cli.{name}")
        subparser = subparsers.add_parser(
            name, help=summary, description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        module.add_arguments(subparser)
        add_plugin_options(subparser, arguments)
        subparser.set_defaults(run=module.run)
    return parser


def _parse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """As ``parse_args``, but an optional text may stand behind options: argparse gives it up at the first one."""
    args, left = parser.parse_known_args(arguments)
    if len(left) == 1 and not left[0].startswith("-") and getattr(args, "text", "") is None:
        args.text, left = left[0], []
    if left:
        parser.error(f"unrecognized arguments: {' '.join(left)}")
    return args


def _open_streams() -> bool:
    """Whether there is somewhere to write to; characters that it does not know are written as escapes."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # for as long as we run
    if sys.stdout is None:
        print("suffolk: stdout is closed; send it to a file or to /dev/null", file=sys.stderr)
        return False
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")
    return True


def _silence_stdout() -> None:
    """Let what is still buffered go nowhere, or the interpreter would complain at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
