"""Makes the parser of a command from its settings."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import NoReturn

from suffolk.cli.options.setting import Setting
from suffolk.datastore.checks import nearest
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.settings import REQUIRED

_REMARK = re.compile(r"^((?:\w+=\S+ )*suffolk .*?\S +) {2}(?=[^#\s])")
"""A command, and the gap before its remark."""
_VALUE_OF_SWITCH = re.compile(r"argument (\S+): ignored explicit argument (.*)")
"""The message of argparse for --json=1."""


class Parser(argparse.ArgumentParser):
    """A parser with one-line errors. Its caller handles --help."""

    def error(self, message: str) -> NoReturn:
        message = _VALUE_OF_SWITCH.sub(r"\1 takes no value, such as \2; leave it out", " ".join(message.split()))
        raise InvalidArgument(f"{message}; see '{self.prog} --help'")


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26, width=100)


def make_parser(prog: str, description: str, examples: str, settings: Mapping[str, Setting]) -> Parser:
    """The parser of the command ``prog``. It reads values as texts. Its namespace holds only the given settings."""
    words = [f"[{each.metavar}{' ...' if each.many else ''}]" for each in settings.values() if each.positional]
    parser = Parser(
        prog=prog,
        usage=" ".join([prog, "[OPTIONS]", *words]),
        description=description,
        epilog=_epilog(prog, examples, settings),
        formatter_class=_Formatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    groups: dict[str, argparse._ActionsContainer] = {"": parser}
    for setting in settings.values():
        if not setting.rare:
            if setting.group not in groups:
                groups[setting.group] = parser.add_argument_group(setting.group)
            _add(groups["" if setting.positional else setting.group], setting)
    return parser


def parse_words(parser: Parser, settings: Mapping[str, Setting], words: Sequence[str]) -> dict[str, list[str]]:
    """The texts that ``words`` give to each setting. Raises InvalidArgument if an option is unknown, or lacks its value."""
    end = words.index("--") if "--" in words else len(words)
    found, left = parser.parse_known_intermixed_args(words[:end])
    for word in left:
        raise InvalidArgument(_unknown(word, parser.prog, settings))
    texts = {name: value if isinstance(value, list) else [str(value)] for name, value in vars(found).items()}
    for word in words[end + 1 :]:  # words after "--" are positional
        free = [name for name, each in settings.items() if each.positional and (each.many or name not in texts)]
        if not free:
            raise InvalidArgument(f"unexpected argument {word!r}; see '{parser.prog} --help'")
        texts.setdefault(free[0], []).append(word)
    return texts


def example_lines(examples: str) -> list[str]:
    """The examples of a command under their heading. A remark after a command becomes a comment of the shell."""
    lines = [_REMARK.sub(r"\1# ", line) for line in examples.strip().splitlines()]
    return ["examples:", *(f"  {line}" if line else "" for line in lines)]


def _add(group: argparse._ActionsContainer, setting: Setting) -> None:
    help = f"{setting.help}{_default(setting)}".replace("%", "%%")
    if setting.positional:
        group.add_argument(setting.name, nargs="*" if setting.many else "?", metavar=setting.metavar, help=help)
    elif setting.kind is bool:
        group.add_argument(setting.flag, dest=setting.name, action="store_true", help=help)
    else:
        several = setting.several
        group.add_argument(
            setting.flag,
            dest=setting.name,
            action="extend" if several else "append",
            nargs="+" if several else None,
            metavar=setting.metavar,
            help=help,
        )


def _default(setting: Setting) -> str:
    value = setting.default
    if value is REQUIRED:
        return " (required)"
    if value in (None, False, "") or value == () or "(default" in setting.help:
        return ""
    return f" (default: {' '.join(map(str, value)) if setting.many else value})"


def _epilog(prog: str, examples: str, settings: Mapping[str, Setting]) -> str:
    further = [name for name, each in settings.items() if each.rare]
    lines = example_lines(examples)
    if further:
        command = prog.partition(" ")[2]
        lines += ["", f"further settings, for --config and --set ('suffolk config show {command}' describes them):"]
        lines += wrap(", ".join(further), 99, initial_indent="  ", subsequent_indent="  ")
    return "\n".join(lines)


def _unknown(word: str, prog: str, settings: Mapping[str, Setting]) -> str:
    if not word.startswith("-"):
        return f"unexpected argument {word!r}; quote a text of several words; see '{prog} --help'"
    flag = word.partition("=")[0]
    name = flag.strip("-").replace("-", "_")
    if name in settings and settings[name].rare:
        return f"{flag} is no option; give it as --set {name}=VALUE, or in the file of --config"
    flags = [each.flag for each in settings.values() if not (each.rare or each.positional)]
    shown = {each.strip("-"): each for each in (*flags, "--help")}  # dashes would make short names alike
    shown |= {name.replace("_", "-"): f"--set {name}=VALUE" for name, each in settings.items() if each.rare}
    same = [each for each in flags if len(flag) == 2 and each[2] == flag[1]]  # for -o: the options that begin with --o
    hint = f" (did you mean {' or '.join(same)}?)" if same else nearest(flag.strip("-"), shown, shown)
    dash = "" if hint or word.startswith("--") else "; write -- before a text that begins with '-'"
    return f"unknown option {flag}{hint}{dash}; see '{prog} --help'"
