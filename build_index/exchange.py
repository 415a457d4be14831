"""Reads logs of OpenAI's API: a record with a request and its response."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from suffolk.build_index.conversation import Conversation, Message, parsed, read_conversation, read_message
from suffolk.datastore.errors import InvalidArgument

REQUESTS = ("request", "request_body", "body", "input", "kwargs")
RESPONSES = ("response", "response_body", "output", "completion")


@dataclass(frozen=True, slots=True)
class ExchangeReply:
    """One choice of a response: a message, or the text of a completion. ``finish``: the finish reason; empty if there is none."""

    content: Message | str
    finish: str = ""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its answers.

    Attributes:
        prompt: a conversation, or the text of a completion.
        answers: the choices; empty if the request failed.
        model: the model's name in the log, or empty.
        max_tokens: the request's limit of generated tokens; None if it set no limit.
    """

    prompt: Conversation | str
    answers: tuple[ExchangeReply, ...]
    model: str = ""
    max_tokens: int | None = None


def find_exchange(record: Any, place: str) -> Exchange | None:
    """The exchange of a record; None if its request or response is missing.

    The request is an object beside the response, or its ``messages`` or ``prompt`` are fields beside the response.

    Raises:
        InvalidArgument: a message is malformed, or an answer is streamed with a tool call.
    """
    if not isinstance(record, dict):
        return None
    nested = next((_object(record.get(name)) for name in REQUESTS if _is_request(_object(record.get(name)))), None)
    request = record if nested is None else nested
    answer_field = next((name for name in RESPONSES if record.get(name) is not None), None)
    if answer_field is None and nested is not None:  # null: the request failed
        answer_field = next((name for name in RESPONSES if name in record), None)
    if answer_field is None or not _is_request(request):
        return None
    response = _object(record[answer_field])
    if isinstance(response, dict):
        response = _object(response.get("body", response))
    limit = request.get("max_completion_tokens") or request.get("max_tokens")
    return Exchange(
        _prompt(request, place),
        _answers(response, place),
        str(request.get("model") or record.get("model") or ""),
        limit if isinstance(limit, int) else None,
    )


def find_answers(record: Any, place: str) -> tuple[ExchangeReply, ...] | None:
    """The answers in a line of a batch file, which holds a request or a response. None for other records.

    Lines of OpenAI's batch files have a ``custom_id``. A request has no answers, and the response of a failed request has none.
    """
    if not isinstance(record, dict):
        return None
    response = _object(next((record[name] for name in RESPONSES if record.get(name) is not None), None))
    if isinstance(response, dict):
        response = _object(response.get("body", response))
    if isinstance(response, dict) and isinstance(response.get("choices"), list):
        return _answers(response, place)
    return () if "custom_id" in record and ("response" in record or _is_request(record.get("body"))) else None


def _object(value: Any) -> Any:
    """Return ``value``, or its parsed content if it is a JSON string, or the ``body`` of a logged HTTP request."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        value = parsed(value)
    if isinstance(value, dict) and isinstance(value.get("body"), dict | str) and not _is_request(value):
        return _object(value["body"])
    return value


def _is_request(value: Any) -> bool:
    return isinstance(value, dict) and (isinstance(_messages(value), list) or isinstance(value.get("prompt"), str))


def _messages(request: Mapping[str, Any]) -> Any:
    return _object(request.get("messages"))


def _prompt(request: Mapping[str, Any], place: str) -> Conversation | str:
    messages = _messages(request)
    if isinstance(messages, list):
        return read_conversation(request, messages, "messages", place)
    return str(request["prompt"])


def _answers(response: Any, place: str) -> tuple[ExchangeReply, ...]:
    """Read the answers of a response object, of stream chunks, of a message, or of a text."""
    if isinstance(response, list) and response and all(isinstance(each, dict) for each in response):
        if any("role" in each for each in response):
            return (ExchangeReply(read_message(response[-1], f"{place}: the answer")),)
        return _streamed(response)
    if isinstance(response, str):
        return (ExchangeReply(response),)
    if not isinstance(response, dict):
        return ()
    if "role" in response:
        return (ExchangeReply(read_message(response, f"{place}: the answer")),)
    choices = response.get("choices")
    found = [_choice(each, place) for each in choices if isinstance(each, dict)] if isinstance(choices, list) else []
    return tuple(each for each in found if each is not None)


def _choice(choice: Mapping[str, Any], place: str) -> ExchangeReply | None:
    finish = str(choice.get("finish_reason") or "")
    if isinstance(choice.get("text"), str):
        return ExchangeReply(choice["text"], finish)
    message = choice.get("message")
    if not isinstance(message, dict):
        return None
    return ExchangeReply(read_message({"role": "assistant"} | message, f"{place}: the answer"), finish)


def _streamed(chunks: list[dict[str, Any]]) -> tuple[ExchangeReply, ...]:
    """Join the answers of a stream's chunks.

    Streamed tool calls are rejected, because their pieces have no common form.

    Raises InvalidArgument if a chunk holds a part of a tool call.
    """
    texts: dict[int, str] = {}
    finishes: dict[int, str] = {}
    chat = False
    for choice in (each for chunk in chunks for each in chunk.get("choices") or () if isinstance(each, dict)):
        index, delta = int(choice.get("index") or 0), choice.get("delta")
        if isinstance(delta, dict) and delta.get("tool_calls"):
            raise InvalidArgument("a streamed tool call is not supported; log whole responses of requests with tools")
        chat = chat or isinstance(delta, dict)
        piece = delta.get("content") if isinstance(delta, dict) else choice.get("text")
        texts[index] = texts.get(index, "") + (piece if isinstance(piece, str) else "")
        finishes[index] = str(choice.get("finish_reason") or finishes.get(index, ""))
    return tuple(
        ExchangeReply({"role": "assistant", "content": text} if chat else text, finishes[index])
        for index, text in sorted(texts.items())
        if text
    )
