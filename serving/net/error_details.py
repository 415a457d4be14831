"""Errors in gRPC's statuses: code and message, and the rest as details of google.rpc."""

from __future__ import annotations

from typing import Any, NoReturn

import grpc
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from suffolk.datastore.errors import Field, SuffolkError
from suffolk.serving.net.retry_times import retry_seconds, retry_trailer, sent_retry_seconds
from suffolk.serving.net.status import error_from_code, error_text, grpc_code

DOMAIN = "suffolk"
"""Of each ``ErrorInfo``. So a client knows that a server of Suffolk ended the call, and not gRPC."""


def abort_call(context: grpc.ServicerContext, error: SuffolkError, code: grpc.StatusCode | None = None) -> NoReturn:
    """End a call with ``error``. ``code``: None for that of the error's class."""
    status = Status(code=(code or grpc_code(error)).value[0], message=error_text(error))
    status.details.add().Pack(ErrorInfo(reason=type(error).__name__, domain=DOMAIN, metadata={"change": error.change}))
    if error.field:
        violation = BadRequest.FieldViolation(field=error.field, description=status.message)
        status.details.add().Pack(BadRequest(field_violations=[violation]))
    sent: Any = rpc_status.to_status(status)
    context.set_trailing_metadata((*sent.trailing_metadata, *retry_trailer(retry_seconds(error))))
    context.abort(sent.code, sent.details)


def sent_error(error: grpc.RpcError, url: str) -> SuffolkError | None:
    """The inverse of ``abort_call``, with ``url`` before the message. None: no server of Suffolk ended the call."""
    try:
        status = rpc_status.from_call(error)  # type: ignore[arg-type]  # it is a Call too
    except ValueError:  # another code than gRPC's
        return None
    info, bad = ErrorInfo(), BadRequest()
    for detail in status.details if status else ():
        detail.Unpack(info)
        detail.Unpack(bad)
    if info.domain != DOMAIN:
        return None
    field = next((each.field for each in bad.field_violations), "")
    before, _, after = status.message.partition(field) if field else (status.message, "", "")
    found = error_from_code(error.code(), f"{url}: ", before, Field(field), after)
    found.change = "none" if info.metadata["change"] == "none" else "unknown"
    found.retry_seconds = sent_retry_seconds(error.trailing_metadata())
    return found
