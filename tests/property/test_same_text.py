"""Other requests and drafters do not change the output. Use ``same_text.py`` for longer runs."""

from __future__ import annotations

import pytest

from tests.property.same_text import BATCHES, STACKS, Case, make_cases, run_together


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return make_cases(6, 7)


@pytest.mark.parametrize("slots", BATCHES)
def test_requests_that_join_and_leave_get_the_tokens_they_get_alone(cases: list[Case], slots: int) -> None:
    seen = run_together(cases, slots, slots, slots)
    assert seen["finished"] > 0.8 * len(cases)  # the others were cancelled
    assert seen["failed"] > 0  # the invalid drafter was called
    assert seen["accepted draft-model"] > 0
    assert seen["accepted datastore"] + seen["accepted hybrid"] > 0  # and other drafters were correct


@pytest.mark.parametrize("slots", BATCHES)
def test_requests_whose_drafts_are_asked_for_ahead_get_the_tokens_they_get_alone(cases: list[Case], slots: int) -> None:
    """In a batch, a request has one accepted draft or none, depending on timing."""
    seen = run_together(cases, slots, slots, 0, ("ahead",))
    assert seen["finished"] > 0.8 * len(cases)
    assert seen["accepted ahead"] > 5


@pytest.mark.parametrize("slots", BATCHES)
def test_requests_of_stacks_of_levels_get_the_tokens_they_get_alone(cases: list[Case], slots: int) -> None:
    seen = run_together(cases, slots, slots, slots, STACKS)
    assert seen["finished"] > 0.8 * len(cases)
    assert seen["failed"] == 0
    for stack in STACKS:
        assert seen[f"accepted {stack}"] > 0
