"""What the library says about its fields, in the words of the command line."""

from __future__ import annotations

import argparse

import pytest

from suffolk.cli.option_names import name_options


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser()
    commands = made.add_subparsers()
    train, _ = commands.add_parser("train"), commands.add_parser("info")
    train.add_argument("head")
    train.add_argument("--held-out")
    train.add_argument("--cache", dest="cache_bytes")
    train.add_argument("-w", "--window")
    train.add_argument("--max-match")
    return made


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("held_out is 2; it must be between 0 and 0.5", "--held-out is 2; it must be between 0 and 0.5"),
        ("cache_bytes is -1; it must be 0 or more", "--cache is -1; it must be 0 or more"),
        ("one document; give held_out 0", "one document; give --held-out 0"),
        ("max_match 16 + max_depth 10 is above 20", "--max-match 16 + max_depth 10 is above 20"),
        ("window is 3; it must be between 8 and 9", "--window is 3; it must be between 8 and 9"),
        ("window: 4 now, and 8 in the run to resume", "--window: 4 now, and 8 in the run to resume"),
        ("the window is 3", "the window is 3"),
        ("head is 3", "head is 3"),
        ("--held-out is 2", "--held-out is 2"),
        ("/tmp/held_out/x: no such file", "/tmp/held_out/x: no such file"),
        ("x.json: 'held_out' is missing", "x.json: 'held_out' is missing"),
    ],
)
def test_fields_are_called_by_their_options(said: str, expected: str) -> None:
    assert name_options(said, parser()) == expected


def test_a_parser_without_options_changes_nothing() -> None:
    assert name_options("held_out is 2", argparse.ArgumentParser(add_help=False)) == "held_out is 2"
