"""Finds and runs a ``suffolk`` command."""

from __future__ import annotations

import codecs
import io
import itertools
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from suffolk.cli.commands import Command, find_command, overview, split_command
from suffolk.cli.options.parser import make_parser
from suffolk.cli.options.reading import labels_of, read_options
from suffolk.cli.options.setting import settings_of
from suffolk.datastore.errors import SuffolkError, missing_extra
from suffolk.datastore.files import printable
from suffolk.datastore.version import __version__

_ESCAPES = "suffolk-escapes"
"""Name of the error handler of the standard streams."""
_BYTE = re.compile(r"\\udc([89a-f][0-9a-f])")
"""The escape by which Python shows a byte in a name that is not UTF-8."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Return its exit code: the command's, that of its error (``exit_code_of``), or 2 if stdout is closed."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not _open_streams():
        return 2
    return exit_code_of(partial(_run_installed, words), "suffolk")


def _run_installed(words: Sequence[str]) -> int:
    """The same as ``_run``. Raises Unsupported: an extra is not installed."""
    try:
        return _run(words)
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from error


def _run(words: Sequence[str]) -> int:
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    if words[:1] in (["--version"], ["version"]):
        print(f"suffolk {__version__}")
        return 0
    listed = overview(words)
    if listed is not None:
        print(listed)
        return 0
    name, rest = split_command(words)
    return run_command(find_command(name), f"suffolk {name}", rest)


def run_command(command: Command, name: str, words: Sequence[str]) -> int:
    """Run ``command`` with ``words``, or print its help. Returns the exit code. ``name``: its name. Raises its errors."""
    settings = settings_of(command.options, words)
    parser = make_parser(name, command.help, command.examples, settings)
    if {"-h", "--help"} & set(itertools.takewhile(lambda word: word != "--", words)):
        parser.print_help()
        return 0
    if command.run_words is not None and (code := command.run_words(words)) is not None:
        return code
    read = partial(read_options, command.options, parser, settings, name.removeprefix("suffolk "), words)
    options = replace(read(), read_again=read)
    try:
        return command.run(options) or 0
    except SuffolkError as error:
        error.rename(labels_of(settings, options.given))
        raise


def _open_streams() -> bool:
    """Set the streams to write characters that their encoding lacks as escapes. Returns whether stdout is open."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # for as long as the process runs
    if sys.stdout is None:
        print("suffolk: stdout is closed; send it to a file or to /dev/null", file=sys.stderr)
        return False
    codecs.register_error(_ESCAPES, _escaped)
    if isinstance(sys.stdout, io.TextIOWrapper) and (sys.stdout.errors == "strict" or sys.stdout.encoding != "utf-8"):
        sys.stdout.reconfigure(errors=_ESCAPES)
    if isinstance(sys.stderr, io.TextIOWrapper):
        with suppress(OSError):  # the stream's file was replaced by a pipe
            sys.stderr.reconfigure(errors=_ESCAPES)
    return True


def _escaped(error: UnicodeError) -> tuple[str | bytes, int]:
    """Escapes of characters that cannot be written. A byte of a name that is no UTF-8 becomes ``\\xNN``."""
    found, end = codecs.backslashreplace_errors(error)
    return _BYTE.sub(r"\\x\1", str(found)), end


def _line(error: BaseException) -> str:
    """The message of ``error`` in one line, with escapes of control characters. Names in quotes are already escaped."""
    return _BYTE.sub(r"\\x\1", printable(" ".join(str(error).split())))


def exit_code_of(work: Callable[[], int], name: str) -> int:
    """Run ``work``. Returns its exit code, or the exit code of its error. The line of the error begins with ``name``.

    1: an internal error; 2: bad input, damage, too little memory, or a file that cannot be read or written; 130: interrupted;
    141: the reader of stdout has gone. Other errors are raised.
    """
    try:
        code = work()
        sys.stdout.flush()
        return code
    except SuffolkError as error:
        print(f"{name}: {_line(error)}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as interrupt:
        print(" ".join([f"{name}: interrupted", *map(str, interrupt.args)]), file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of the output has ended (suffolk info | head)
        _silence_stdout()
        return 141
    except MemoryError as error:
        print(
            f"{name}: not enough memory ({_line(error) or 'none left'}); give smaller numbers, or free some memory",
            file=sys.stderr,
        )
        return 2
    except OSError as error:  # the file system refused, for example output to a full disk
        print(
            f"{name}: {_line(error)}; check the path, its permissions and the free space",
            file=sys.stderr,
        )
        _silence_stdout()
        return 2


def _silence_stdout() -> None:
    """Discard unwritable output, which would otherwise raise an error at exit."""
    with suppress(OSError):
        sys.stdout.flush()  # prints the results if another file than stdout failed
    with suppress(OSError, io.UnsupportedOperation):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
