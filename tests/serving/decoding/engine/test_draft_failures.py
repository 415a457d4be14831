"""Failed drafts are counted by reason, and each reason is logged once."""

from __future__ import annotations

import logging

import pytest

from suffolk.serving.decoding.engine.loop.draft_stats import DraftFailures, failures_by_reason


def test_each_reason_is_logged_once_and_counted_each_time(caplog: pytest.LogCaptureFixture) -> None:
    failures = DraftFailures("draft model small")
    with caplog.at_level(logging.WARNING):
        failures.add("Unavailable", "nobody answers")
        failures.add("Unavailable", "nobody answers yet", drafts=3)
        failures.add("Internal", "two trees came for one request")
    assert [record.getMessage() for record in caplog.records] == [
        "draft model small: nobody answers; continuing without its drafts",
        "draft model small: two trees came for one request; continuing without its drafts",
    ]
    assert failures.stats() == {"failed": 5, "failed Unavailable": 4, "failed Internal": 1}


def test_what_stats_say_is_read_back() -> None:
    failures = DraftFailures("x")
    assert failures.stats() == {"failed": 0}
    failures.add("NotFound", "gone", 2)
    assert failures_by_reason({"calls": 7, **failures.stats()}) == {"NotFound": 2}
