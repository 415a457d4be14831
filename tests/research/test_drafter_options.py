"""Studies read the drafters' options from the registry."""

from __future__ import annotations

import argparse
from pathlib import Path

from research.command import add_drafter_options, read_drafter_config


def test_lists_are_empty_where_nothing_is_given() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", default="auto")
    add_drafter_options(parser)
    assert read_drafter_config(parser.parse_args([])).parts() == {}
    given = read_drafter_config(parser.parse_args(["--head", "a", "--head", "b", "--draft-model", "c"]))
    assert given.options == {"head": [Path("a"), Path("b")], "draft_model": "c"}
