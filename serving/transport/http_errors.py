"""Errors as HTTP answers, in JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from suffolk.datastore.errors import SuffolkError
from suffolk.serving.transport.retry_times import retry_seconds
from suffolk.serving.transport.status import error_text, grpc_code, http_status

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
    """{"error": {"code": name of the gRPC code or of the HTTP status, "message"}}."""
    code = grpc_code(error).name if isinstance(error, SuffolkError) else status.name
    return {"error": {"code": code, "message": message(error)}}


def message(error: Exception) -> str:
    """The message of a SuffolkError or HTTPException."""
    return error_text(error) if isinstance(error, SuffolkError) else str(getattr(error, "detail", error))
