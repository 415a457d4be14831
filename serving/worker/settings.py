"""Sampling settings on the wire: the one place that says which of their fields this version serves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from datastore.errors import Unsupported
from serving.decoding.settings import SamplingSettings
from serving.proto import decode_pb2
from serving.worker import limits


@dataclass(frozen=True, slots=True)
class Field:
    """How a field's value is read from the wire and written to it."""

    read: Callable[[Any], Any]
    write: Callable[[Any], Any]


FIELDS = {
    "max_new_tokens": Field(int, int),
    "temperature": Field(float, float),
    "top_k": Field(int, int),
    "top_p": Field(float, float),
    "seed": Field(int, int),
    "stop": Field(tuple, list),
    "ignore_eos": Field(bool, bool),
}
"""The fields that are served, by their name in both ``SamplingSettings`` and the message."""

NEUTRAL = {
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "verification": "match",
}
"""What fields that are not served may say, because it asks for nothing."""


def unpack_settings(message: decode_pb2.SamplingSettings) -> SamplingSettings:
    """Raises InvalidArgument for a value out of its range, Unsupported for a field that is not served."""
    limits.check_stops(message.stop)
    if message.HasField("max_new_tokens"):
        limits.check_new_tokens(message.max_new_tokens)
    values: dict[str, Any] = {}
    for descriptor, value in message.ListFields():
        name = descriptor.name
        if name in FIELDS:
            values[name] = FIELDS[name].read(value)
        elif name not in NEUTRAL or value != NEUTRAL[name]:
            raise Unsupported(f"sampling.{name} is not served by this worker; leave it out, or ask a newer one")
    return SamplingSettings(**values)


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
