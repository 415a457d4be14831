"""Errors as HTTP answers, in JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from suffolk.datastore.errors import SuffolkError
from suffolk.serving.net.retry_times import retry_seconds
from suffolk.serving.net.status import error_text, grpc_code, http_status

ErrorBody = Callable[[HTTPStatus, Exception], Mapping[str, Any]]
"""(status, SuffolkError or HTTPException) -> the JSON of the answer."""


def error_response(error: Exception, error_body: ErrorBody) -> Response:
    """The answer for a SuffolkError or HTTPException.

    After an HTTPException the connection is closed, because the body may be unread.
    """
    if isinstance(error, SuffolkError):
        status, headers = http_status(error), {}
    else:
        assert isinstance(error, HTTPException)
        status, headers = HTTPStatus(error.status_code), {**(error.headers or {}), "Connection": "close"}
    if (seconds := retry_seconds(error)) is not None:
        headers["Retry-After"] = str(max(1, math.ceil(seconds)))
    return JSONResponse(error_body(status, error), status, headers)


def plain_error(status: HTTPStatus, error: Exception) -> dict[str, Any]:
    """{"error": {"code", "message"}}, with "field", "change" and "retry_seconds" if known. The code is gRPC's, or HTTP's."""
    if not isinstance(error, SuffolkError):
        return {"error": {"code": status.name, "message": message(error)}}
    data: dict[str, Any] = {"field": error.field, "change": error.change if error.change == "none" else None}
    data["retry_seconds"] = retry_seconds(error)
    known = {name: value for name, value in data.items() if value is not None}
    return {"error": {"code": grpc_code(error).name, "message": message(error), **known}}


def message(error: Exception) -> str:
    """The message of a SuffolkError or HTTPException."""
    return error_text(error) if isinstance(error, SuffolkError) else str(getattr(error, "detail", error))
