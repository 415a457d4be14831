"""Sampling settings on the wire: the one place that says which of their fields this version serves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from suffolk.datastore.errors import Unsupported
from suffolk.serving.engine.sampling.settings import SamplingSettings
from suffolk.serving.proto import decode_pb2
from suffolk.serving.transport.tokens import pack_tokens, to_tokens, unpack_tokens
from suffolk.serving.worker import limits


@dataclass(frozen=True, slots=True)
class Field:
    """How a field's value is read from the wire and written to it."""

    read: Callable[[Any], Any]
    write: Callable[[Any], Any]


def _read_words(words: Sequence[bytes]) -> tuple[tuple[int, ...], ...]:
    limits.check_bad_words(len(words))  # before anything is made of each: a request holds millions
    return tuple(_read_word(f"sampling.bad_words[{place}]", word) for place, word in enumerate(words))


def _read_word(field: str, word: bytes) -> tuple[int, ...]:
    tokens = unpack_tokens(word, field)
    limits.check_bad_word(field, len(tokens))
    return tuple(tokens.tolist())


def _write_words(words: Sequence[Sequence[int]]) -> list[bytes]:
    return [pack_tokens(to_tokens(word, f"bad_words[{place}]")) for place, word in enumerate(words)]


def _read_stops(stops: Sequence[str]) -> tuple[str, ...]:
    limits.check_stops(stops)
    return tuple(stops)


def _read_new_tokens(count: int) -> int:
    limits.check_new_tokens(count)
    return count


FIELDS = {
    "max_new_tokens": Field(_read_new_tokens, int),
    "temperature": Field(float, float),
    "top_k": Field(int, int),
    "top_p": Field(float, float),
    "min_p": Field(float, float),
    "repetition_penalty": Field(float, float),
    "presence_penalty": Field(float, float),
    "frequency_penalty": Field(float, float),
    "bad_words": Field(_read_words, _write_words),
    "seed": Field(int, int),
    "stop": Field(_read_stops, list),
    "ignore_eos": Field(bool, bool),
    "logprobs": Field(int, int),
    "verification": Field(str, str),
    "epsilon": Field(float, float),
    "delta": Field(float, float),
}
"""The fields that are served, by their name in both ``SamplingSettings`` and the message."""


def unpack_settings(message: decode_pb2.SamplingSettings) -> SamplingSettings:
    """Raises InvalidArgument for a value out of its range, Unsupported for a field of a newer version."""
    require_known(message, "sampling")
    return SamplingSettings(**{field.name: FIELDS[field.name].read(value) for field, value in message.ListFields()})


def require_known(message: Message, name: str) -> None:
    """Raises Unsupported if ``message`` has fields that this version does not know: they would be ignored."""
    unknown = UnknownFieldSet(message)
    if len(unknown):
        number = unknown[0].field_number
        raise Unsupported(f"{name}: field number {number} is unknown to this worker; leave it out, or ask a newer one")


def pack_settings(settings: SamplingSettings) -> decode_pb2.SamplingSettings:
    """What differs from the defaults, as a message. Raises Unsupported for what cannot be sent."""
    defaults = SamplingSettings()
    changed: dict[str, Any] = {}
    for field in fields(settings):
        value = getattr(settings, field.name)
        if value != getattr(defaults, field.name):
            if field.name not in FIELDS:
                raise Unsupported(f"{field.name} cannot be sent to a worker; use an engine in this process")
            changed[field.name] = FIELDS[field.name].write(value)
    try:
        return decode_pb2.SamplingSettings(**changed)
    except (ValueError, TypeError) as error:  # a number that the wire's type does not hold
        raise Unsupported(f"sampling settings cannot be sent: {error}") from None
