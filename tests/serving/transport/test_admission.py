"""Admission control."""

from __future__ import annotations

import pytest

from suffolk.datastore.errors import (
    ResourceExhausted,
)
from suffolk.serving.transport.admission import AdmissionController


def test_admission_controller_rejects_calls_beyond_its_limit() -> None:
    admission = AdmissionController(2, "--max-concurrent")
    with admission.admit_call(), admission.admit_call():
        assert admission.in_flight() == 2
        with pytest.raises(
            ResourceExhausted, match="already runs 2 calls, its limit; try again later or raise --max-concurrent"
        ):
            admission.admit_call().__enter__()
    assert admission.in_flight() == 0
