"""Bodies of HTTP requests and errors. Pydantic parses requests. Their size is bounded, and large ones take turns."""

from __future__ import annotations

import asyncio
import json
import math
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http import HTTPStatus
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from suffolk.datastore.checks import nearest
from suffolk.datastore.duty_cycle import DutyCycle
from suffolk.datastore.errors import Field, InvalidArgument, SuffolkError
from suffolk.serving.net.call_errors import error_text, grpc_code, http_status, retry_seconds

BodyT = TypeVar("BodyT", bound=BaseModel)
_DISCARD_SECONDS = 1.0
_SMALL = 1 << 16
"""Most bytes of a body whose invalid values messages show. In a larger body, an invalid value may be too long to show."""
_KEYS = 200
"""Most characters in a message that lists the keys of a body."""
_UTF8 = ("utf-8", "utf8", "us-ascii", "ascii")
_CHARSET = re.compile(r";\s*charset\s*=\s*[\"']?([^\s;\"']+)", re.IGNORECASE)
_CHARSETS = (*_UTF8, "utf-16", "utf-16le", "utf-16be", "utf-32", "iso-8859-1", "latin1", "windows-1252", "cp1252")
"""Character sets of bodies. Some of Python's other character sets take very long to decode."""
_FORMS = {
    "bool_type": "true or false",
    "dict_type": "an object",
    "float_type": "a number",
    "greater_than_equal": "at least {ge}",
    "int_type": "a whole number",
    "less_than": "below {lt}",
    "less_than_equal": "at most {le}",
    "list_type": "an array",
    "literal_error": "{expected}",
    "model_type": "an object",
    "string_type": "a string",
    "too_short": "an array with entries",
}
"""pydantic's type of an error -> what the value must be. Names in braces are keys of the error's context."""
_SHOWN = 60
"""Characters of an invalid value that a message shows."""
LARGE = 1 << 16
"""Bytes from which a body is large: large bodies take turns."""
SHARE = 0.1
"""Largest share of the time in which large bodies are parsed."""
T = TypeVar("T")
ErrorBody = Callable[[HTTPStatus, Exception], Mapping[str, Any]]
"""(status, SuffolkError or HTTPException) -> the JSON of the answer."""


class InvalidField(InvalidArgument):
    """InvalidArgument for one field of a body.

    Args:
        field: path of the field, for example messages[0].content; empty for the whole body.
        code: error code for programs; may be empty.
    """

    def __init__(self, field: str, text: str, code: str = "") -> None:
        super().__init__(Field(field) if field else "body", text)
        self.code = code


def check_encoding(request: Request, is_stream: bool = False) -> str:
    """The character set of the body. ``is_stream``: whether the body is read in parts; it must then be UTF-8.

    Raises HTTPException 415 for a compressed body, or another character set.
    """
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        text = f"the content encoding is {encoding[:60]!r}; send the body as it is"
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text)
    named = _CHARSET.search(request.headers.get("content-type", ""))
    charset = named[1].lower() if named else "utf-8"
    if charset not in (_UTF8 if is_stream else _CHARSETS):
        text = f"the character set is {charset[:60]!r}; send the body in UTF-8"
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text)
    return charset


def check_query(request: Request, *keys: str) -> None:
    """Raises InvalidField for a key of the query that is not one of ``keys``, or is there twice."""
    given = [key for key, _ in request.query_params.multi_items()]
    if odd := next((key for key in given if key not in keys), ""):
        known = ", ".join(keys) or "in the body"
        raise InvalidField(odd, f": unknown key of the query{nearest(odd, keys)}; the keys are {known}")
    if repeated := next((key for key in given if given.count(key) > 1), ""):
        raise InvalidField(repeated, ": it is twice in the query; give it once")


async def read_utf8(request: Request, limit: int) -> bytes:
    """Read the body in the same way as ``read_body``, and convert it to UTF-8.

    Raises the errors of ``check_encoding``, and InvalidField if the body is not valid in its character set.
    """
    charset = check_encoding(request)
    data = await read_body(request, limit)
    if charset in _UTF8:
        return data
    try:
        return data.decode(charset).encode()
    except UnicodeError as error:
        raise InvalidField("", f": it is not in {charset}, its character set ({error}); send it in UTF-8") from None


async def read_body(request: Request, limit: int) -> bytes:
    """Read the body. Raises HTTPException 413 above ``limit`` bytes, without reading all of it."""
    length = request.headers.get("content-length", "0")
    body = bytearray()
    if int(length) <= limit:  # h11 has checked that it is a number
        async for part in request.stream():
            body += part
            if len(body) > limit:
                break
        else:
            return bytes(body)
    await discard_rest(request)
    text = f"the body has more than {limit} bytes, the limit; split it into several calls"
    raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)


async def discard_rest(request: Request) -> None:
    """Read the rest of the body, for up to a second. A client that is still sending could otherwise miss the answer."""
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(_discard(request), _DISCARD_SECONDS)


async def _discard(request: Request) -> None:
    with suppress(RuntimeError, ClientDisconnect):  # RuntimeError: the end has been read
        async for _ in request.stream():
            pass


def parse_body(kind: type[BodyT], data: bytes, check_given: Callable[[Mapping[str, Any]], None] | None = None) -> BodyT:
    """``data`` as a ``kind``. Raises InvalidField with one invalid field (see ``_reach``), its value and the expected form.

    ``check_given``: called with the fields of a body that lacks a required field. It may raise InvalidField for a field that
    belongs to another path of the API.
    """
    try:
        return kind.model_validate_json(data.removeprefix(BOM_UTF8))
    except ValidationError as error:
        found, field, text = invalid_field(error, len(data) <= _SMALL)
        if isinstance(cause := found.get("ctx", {}).get("error"), InvalidField):  # raised by a validator of ``kind``
            raise cause from None
    match found["type"]:
        case "json_invalid" if "hex escape" in text:
            raise InvalidField(
                "", f": a text has half a surrogate pair, such as \\ud83d ({text}); send whole characters"
            )
        case "json_invalid":
            raise InvalidField("", f": not JSON: {text}")
        case "missing":
            given = found.get("input") if len(found["loc"]) == 1 else None
            if given and check_given is not None:
                check_given(given)
            keys = f"; the body has {', '.join(given)}" if given else ""
            raise InvalidField(field, f": {text}{keys[:_KEYS]}")
        case "extra_forbidden":
            known = kind.model_fields
            keys = "" if len(found["loc"]) > 1 else f"{nearest(field, [*known])}; the keys are {', '.join(known)}"
            raise InvalidField(field, f": unknown key{keys}")
        case "too_long":
            size, limit = found["ctx"]["actual_length"], found["ctx"]["max_length"]  # size: None for an object
            raise InvalidField(field, f" has {size or 'too many'} entries; at most {limit} are allowed")
        case _:
            raise InvalidField(field, f" is {shown(found['input'])}; {text}" if "input" in found else f": {text}")


def shown(value: Any) -> str:
    """A value of a body for a message: its JSON, cut off at ``_SHOWN`` characters. Strings have single quotes, because double ones
    are escaped in JSON, the form of the answer."""
    return (repr(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False))[:_SHOWN]


def invalid_field(error: ValidationError, with_input: bool = False) -> tuple[Mapping[str, Any], str, str]:
    """The error that ``_reach`` selects, the path of its field, and what is wrong. ``with_input``: the error has the field's
    value."""
    errors = error.errors(include_url=False, include_input=with_input)
    found = max(errors, key=_reach)
    return found, _path(found["loc"]), _words(found, errors)


def _reach(error: Mapping[str, Any]) -> tuple[bool, int, list[int]]:
    """Sort key of errors; the error with the largest key is reported. A list that is too long comes first, because its items are
    valid. Otherwise the deepest error is reported, and of equally deep errors the one with the largest indices."""
    return error["type"] == "too_long", len(error["loc"]), [part for part in error["loc"] if isinstance(part, int)]


def _words(found: Mapping[str, Any], errors: Sequence[Mapping[str, Any]]) -> str:
    """What is wrong. For a union: all forms that the value may have."""
    if found["type"] in _FORMS:
        place = _reach(found), _path(found["loc"])
        same = [each for each in errors if (_reach(each), _path(each["loc"])) == place and each["type"] in _FORMS]
        named = same if found["type"].endswith("_type") else [found]  # a bound has no alternatives
        forms = [_FORMS[each["type"]].format(**each.get("ctx", {})) for each in named]
        return f"it must be {' or '.join(dict.fromkeys(forms))}"
    text = str(found["msg"]).removeprefix("Value error, ")  # pydantic's prefix of a validator's message
    return text[0].lower() + text[1:]


def _path(location: tuple[int | str, ...]) -> str:
    """("messages", 0, "content") as messages[0].content. Names of types, which pydantic adds for unions, are left out."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier() and part not in _TYPES:
            path += f".{part}" if path else part
    return path


_TYPES: frozenset[Any] = frozenset(("str", "int", "float", "bool"))


class LargeBodies:
    """Parses the bodies of one server in threads. Large bodies share one thread, for at most a tenth of the time. So waiting
    bodies occupy no thread that other calls need. The first large body
    after a pause is parsed at once.
    """

    def __init__(self, turns: DutyCycle | None = None) -> None:
        self._turns = turns or DutyCycle(SHARE)
        self._thread = ThreadPoolExecutor(1, "suffolk-bodies")

    async def run(self, size: int, work: Callable[[], T]) -> T:
        """The result of ``work``, which parses a body of ``size`` bytes. Raises its errors."""

        def take_turn() -> T:
            with self._turns.work():
                return work()

        if size <= LARGE:
            return await asyncio.to_thread(work)
        return await asyncio.get_running_loop().run_in_executor(self._thread, take_turn)


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
    """{"error": {"code", "message"}}, with "field", "change" and "retry_seconds" if known. The code is gRPC's for a
    SuffolkError, and HTTP's for an HTTPException."""
    if not isinstance(error, SuffolkError):
        return {"error": {"code": status.name, "message": message(error)}}
    data: dict[str, Any] = {"field": error.field, "change": error.change if error.change == "none" else None}
    data["retry_seconds"] = retry_seconds(error)
    known = {name: value for name, value in data.items() if value is not None}
    return {"error": {"code": grpc_code(error).name, "message": message(error), **known}}


def message(error: Exception) -> str:
    """The message of a SuffolkError or HTTPException."""
    return error_text(error) if isinstance(error, SuffolkError) else str(getattr(error, "detail", error))
