"""Errors carry data; their sentence is made of parts."""

from __future__ import annotations

import copy
import pickle
import re
from pathlib import Path

from suffolk.datastore.errors import ALL_ERRORS, Field, InvalidArgument, ResourceExhausted, Unavailable

ROOT = Path(__file__).parents[2]
PRODUCT = ("datastore", "serving", "build_index", "benchmarks", "suffolk/cli")
READ = re.compile(r"in str\(error\)|error\.args|re\.\w+\([^)]*(?:str\(error\)|\bmessage\b|error_text)")
"""Code that reads the sentence of an error."""


def test_a_door_has_its_own_names_for_fields() -> None:
    error = InvalidArgument(Field("max_nodes"), " is 9; it must be at most ", Field("ids[3]"), ", or max_nodes")
    assert (str(error), error.field) == ("max_nodes is 9; it must be at most ids[3], or max_nodes", "max_nodes")
    error.rename({"max_nodes": "--max-nodes", "ids": "--id"})
    assert (str(error), error.field) == ("--max-nodes is 9; it must be at most --id[3], or max_nodes", "--max-nodes")
    assert InvalidArgument("max_nodes is 9").field is None


def test_more_is_said_around_the_message() -> None:
    error = Unavailable(Field("x"), " in /a/b", change="none", retry_seconds=2.0)
    error.extend("line 3: ", "; two are there")
    error.replace("/a/b", "wiki")
    assert str(error) == "line 3: x in wiki; two are there"
    for same in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301  # its own bytes
        assert (str(same), same.field, same.change, same.retry_seconds) == (str(error), "x", "none", 2.0)


def test_without_more_nothing_is_known() -> None:
    for kind in ALL_ERRORS:
        error = kind("bad")
        assert (str(error), error.field, error.change, error.retry_seconds) == ("bad", None, "unknown", None)
    assert ResourceExhausted("full", retry_seconds=0.5).retry_seconds == 0.5


def test_nothing_reads_a_sentence() -> None:
    own = ROOT / "datastore" / "errors.py"
    paths = [path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py") if path != own]
    assert len(paths) > 500
    assert [str(path) for path in paths if READ.search(path.read_text())] == []
