"""Tests admission control."""

from __future__ import annotations

import pytest

from suffolk.datastore.errors import (
    ResourceExhausted,
    Unavailable,
)
from suffolk.serving.net.admission import AdmissionController


def test_admission_controller_rejects_calls_beyond_its_limit() -> None:
    admission = AdmissionController(2, "--max-concurrent")
    with admission.admit_call(), admission.admit_call():
        assert admission.in_flight() == 2
        with pytest.raises(
            ResourceExhausted, match="already has 2 calls, its limit; try again later or raise --max-concurrent"
        ):
            admission.admit_call().__enter__()
    assert admission.in_flight() == 0


def test_a_call_may_take_several_places() -> None:
    admission = AdmissionController(3, "--slots")
    with admission.admit_call(2):
        with pytest.raises(
            ResourceExhausted,
            match="already has 2 calls, and its limit of 3 leaves no room for 2 more; try again later",
        ):
            admission.admit_call(2).__enter__()
        with admission.admit_call():
            assert admission.in_flight() == 3
    assert admission.in_flight() == 0


def test_a_closed_controller_rejects_calls_and_waits_for_the_rest() -> None:
    admission = AdmissionController(2, "--slots")
    with admission.admit_call():
        admission.close()
        with pytest.raises(Unavailable, match="the server is stopping"):
            admission.admit_call().__enter__()
        admission.wait_idle(0.01)
        assert admission.in_flight() == 1
    admission.wait_idle(60.0)
