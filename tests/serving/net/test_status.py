"""Tests errors as gRPC status codes and HTTP statuses."""

from __future__ import annotations

import grpc
import pytest

from suffolk.datastore.errors import (
    ALL_ERRORS,
    InvalidArgument,
    SuffolkError,
)
from suffolk.serving.net.call_errors import STATUS_CODES, error_from_code, error_text, grpc_code, http_status
from suffolk.serving.net.limits import MAX_ERROR_TEXT


@pytest.mark.parametrize("kind", ALL_ERRORS)
def test_errors_keep_their_kind_both_ways(kind: type[SuffolkError]) -> None:
    class Narrower(kind):  # type: ignore[misc, valid-type]
        pass

    for error in (kind("store: 3"), Narrower("store: 3")):
        back = error_from_code(grpc_code(error), error_text(error))
        assert type(back) is kind
        assert str(back) == "store: 3"
        assert 400 <= http_status(error) < 600


def test_error_table_is_one_to_one() -> None:
    assert set(STATUS_CODES) == set(ALL_ERRORS)
    assert len({code for code, _ in STATUS_CODES.values()}) == len(ALL_ERRORS)


@pytest.mark.parametrize("code", grpc.StatusCode)
def test_every_code_is_some_error(code: grpc.StatusCode) -> None:
    assert isinstance(error_from_code(code, "text"), SuffolkError)


def test_error_text_fits_one_short_line() -> None:
    assert error_text(InvalidArgument("a\n  b")) == "a b"
    assert len(error_text(InvalidArgument("x" * 5000))) == MAX_ERROR_TEXT
