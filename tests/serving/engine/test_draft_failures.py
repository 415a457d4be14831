"""Drafts that are missed are counted by reason, and each reason is said once."""

from __future__ import annotations

import logging

import pytest

from suffolk.serving.engine.loop.draft_failures import DraftFailures, missed_by_reason


def test_each_reason_is_logged_once_and_counted_each_time(caplog: pytest.LogCaptureFixture) -> None:
    missed = DraftFailures("draft model small")
    with caplog.at_level(logging.WARNING):
        missed.add("Unavailable", "nobody answers")
        missed.add("Unavailable", "nobody answers yet", drafts=3)
        missed.add("Internal", "two trees came for one request")
    assert [record.getMessage() for record in caplog.records] == [
        "draft model small: nobody answers; going on without its drafts",
        "draft model small: two trees came for one request; going on without its drafts",
    ]
    assert missed.stats() == {"missed": 5, "missed Unavailable": 4, "missed Internal": 1}


def test_what_stats_say_is_read_back() -> None:
    missed = DraftFailures("x")
    assert missed.stats() == {"missed": 0}
    missed.add("NotFound", "gone", 2)
    assert missed_by_reason({"calls": 7, **missed.stats()}) == {"NotFound": 2}
