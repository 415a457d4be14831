"""Tests conditions on documents."""

from __future__ import annotations

import pytest

from suffolk.datastore.documents import Origin
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.query import parse_query

ORIGIN = Origin("src/a.py", {"license": "mit", "stars": 3, "share": 0.5, "fork": True, "note": "a=b~c"})


@pytest.mark.parametrize(
    ("where", "holds"),
    [
        (["license=mit"], True),
        (["license=MIT"], False),
        (["license=m*"], False),
        (["license~m*"], True),
        (["license!=mit"], False),
        (["stars=3", "share=0.5", "fork=true"], True),
        (["stars=3", "fork=false"], False),
        (["note=a=b~c"], True),
        (["source~src/*"], True),
        (["source=src"], False),
        (["missing=None"], False),
        (["missing~*"], False),
        (["missing!=x"], True),
    ],
)
def test_conditions_hold_or_not(where, holds):
    assert parse_query([], where).matches(ORIGIN) == holds


def test_ids_and_conditions_must_both_agree():
    assert parse_query(["src/a.py", "b"], []).matches(ORIGIN)
    assert not parse_query(["b"], ["license=mit"]).matches(ORIGIN)
    assert not parse_query(["src/a.py"], ["license=gpl"]).matches(ORIGIN)
    assert not parse_query(["None"], []).matches(Origin(None))


@pytest.mark.parametrize("text", ["license", "=mit", "", "~", "!=x"])
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(InvalidArgument, match="not of the form field=value"):
        parse_query([], [text])


def test_a_query_for_everything_is_refused():
    with pytest.raises(InvalidArgument, match="neither ids nor conditions are given"):
        parse_query([], [])
