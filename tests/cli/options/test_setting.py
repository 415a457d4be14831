"""Tests the settings that dataclasses declare, and the options that parsers read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest

from suffolk.cli.options.parser import make_parser
from suffolk.cli.options.reading import read_options
from suffolk.cli.options.setting import Configurable, Options, passed_on, settings_of
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.settings import REQUIRED, Share, Within, argument, option, rare


@dataclass(frozen=True, kw_only=True)
class Base(Options):
    GROUP = "base"
    size: Annotated[int, Within(1, 9)] = option(4, "how large", metavar="N")
    names: tuple[str, ...] = option((), "of things", several=True)


@dataclass(frozen=True, kw_only=True)
class Command(Base, Configurable):
    text: str | None = argument(None, "what to say", metavar="TEXT")
    files: tuple[Path, ...] = argument((), "what to read", metavar="FILE")
    share: Share = rare(0.5, "how much")
    loud: bool = option(False, "whether to shout", excludes=("quiet",))
    quiet: bool = option(False, "whether to whisper")


@dataclass(frozen=True, kw_only=True)
class Plain(Base):
    target: Path = option(REQUIRED, "where to")
    share: float = rare(0.5, "how much")


def read(words: str, kind: type[Any] = Command) -> Any:
    settings = settings_of(kind)
    return read_options(kind, make_parser("suffolk x", "", "", settings), settings, "x", words.split())


def test_values_have_the_types_of_their_fields() -> None:
    found = read("hello --size 7 --names a b --loud one two --set share=1")
    assert (found.text, found.files, found.size, found.names) == ("hello", (Path("one"), Path("two")), 7, ("a", "b"))
    assert (found.loud, found.quiet, found.share) == (True, False, 1.0)
    assert read("") == Command()


def test_texts_may_stand_behind_options_and_behind_two_dashes() -> None:
    assert read("--size 7 hello").text == "hello"
    found = read("--size 7 -- -x --size 8")
    assert (found.text, found.files) == ("-x", (Path("--size"), Path("8")))


def test_the_last_of_an_option_counts_and_lists_grow() -> None:
    found = read("--size 7 --size 8 --names a --names b c")
    assert (found.size, found.names) == (8, ("a", "b", "c"))


def test_rare_settings_are_options_where_there_is_no_file() -> None:
    assert settings_of(Command)["share"].rare
    assert not settings_of(Plain)["share"].rare
    assert read("--target x --share 0.25", Plain).share == 0.25


def test_settings_say_what_they_take() -> None:
    settings = settings_of(Command)
    assert settings["size"].domain == "a whole number between 1 and 9"
    assert settings["share"].domain == "a number above 0 and at most 1"
    assert settings["names"].domain == "a list, each a text"
    assert [each.group for each in settings.values()][:2] == ["base", "base"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--size 0", "--size is 0; it must be between 1 and 9"),
        ("--size x", "--size is 'x'; it must be a whole number between 1 and 9"),
        ("--siz 3", r"unknown option --siz \(did you mean --size\?\); see 'suffolk x --help'"),
        ("-s 3", r"unknown option -s \(did you mean --size or --set\?\); see"),
        ("--shar 3", r"unknown option --shar \(did you mean --set share=VALUE\?\)"),
        ("--sort 3", "unknown option --sort; see 'suffolk x --help'"),  # with dashes, half of it is --set or --size
        ("--share 3", "--share is no option; give it as --set share=VALUE, or in the file of --config"),
        ("--loud --quiet", "--loud and --quiet are both given; leave one of them out"),
        ("--size", "argument --size: expected one argument; see 'suffolk x --help'"),
    ],
)
def test_bad_words_are_refused(words: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^{message}"):
        read(words)


def test_a_required_option_is_missed() -> None:
    with pytest.raises(InvalidArgument, match="^--target FILE is missing; see 'suffolk x --help'"):
        read("", Plain)


def test_options_become_a_dataclass_of_the_library() -> None:
    @dataclass(frozen=True)
    class Library:
        size: int
        share: float = 0.1
        other: Mapping[str, int] | None = None

    assert passed_on(read("--size 3"), Library) == Library(3, 0.5)
    assert passed_on(read("--size 3"), Library, share=0.2, other={"a": 1}) == Library(3, 0.2, {"a": 1})
