"""Errors in OpenAI's form: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from suffolk.datastore.errors import NotFound, SuffolkError
from suffolk.serving.decoding.engine.loop.prompt import PromptTooLong
from suffolk.serving.net.call_errors import grpc_code
from suffolk.serving.net.http_body import InvalidField, message

_TYPES = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
}
_CODES = {
    HTTPStatus.UNAUTHORIZED: "invalid_api_key",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_exceeded",
}
_NAMES = {
    "max_new_tokens": "max_tokens",
    "include_stop": "include_stop_str_in_output",
    "the prediction": "prediction",
    "the prompt": "prompt",
    "logit_bias": "logit_bias",
    "datastore": "suffolk.datastores",
    "drafter": "suffolk.drafter",
    "group": "suffolk.group",
    "max_nodes": "suffolk.max_nodes",
}
"""The engine's name of a field -> the request's name, if their forms differ. The request's name is then shown without an index,
because the index is the engine's."""


def error_body(status: HTTPStatus, error: Exception) -> dict[str, Any]:
    """The JSON of the answer for a SuffolkError or HTTPException."""
    kind = _TYPES.get(status, "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "server_error")
    fallback = grpc_code(error).name.lower() if isinstance(error, SuffolkError) else status.name.lower()
    if isinstance(error, NotFound):  # only a model can be missing
        return _body(message(error), kind, "model", "model_not_found")
    if isinstance(error, PromptTooLong):
        fallback = "context_length_exceeded"
    code = (error.code if isinstance(error, InvalidField) else "") or _CODES.get(status, fallback)
    return _body(message(error), kind, _param(status, error), code)


def _body(text: str, kind: str, param: str | None, code: str) -> dict[str, Any]:
    return {"error": {"message": text, "type": kind, "param": param, "code": code}}


def _param(status: HTTPStatus, error: Exception) -> str | None:
    """The field of the request that is wrong, if the error names one."""
    field = error.field if isinstance(error, SuffolkError) and status is HTTPStatus.BAD_REQUEST else None
    if field is None:
        return None
    name, bracket, place = field.partition("[")
    if isinstance(error, InvalidField):  # its field is named as in the request already
        return field
    return _NAMES.get(name, name) + ("" if name in _NAMES else bracket + place)
