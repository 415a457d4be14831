"""Converts sampling settings to and from protobuf. The fields have the same names on both sides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from suffolk.datastore.checks import check_range
from suffolk.datastore.errors import Unsupported
from suffolk.serving.decoding.engine.sampling.grammar import Grammar
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.net.proto import decode_pb2
from suffolk.serving.net.tokens import pack_tokens, to_tokens, unpack_tokens
from suffolk.serving.worker import limits

FIELDS = tuple(field.name for field in decode_pb2.SamplingSettings.DESCRIPTOR.fields)
"""Settings that can be sent to a worker."""


def unpack_settings(message: decode_pb2.SamplingSettings) -> SamplingSettings:
    """Raises InvalidArgument for a value out of its range, Unsupported for an unknown field."""
    require_known(message, "sampling")
    _check_limits(message)
    values = {field.name: value for field, value in message.ListFields()}
    return SamplingSettings(**{name: _READ.get(name, _identity)(value) for name, value in values.items()})


def require_known(message: Message, name: str) -> None:
    """Raises Unsupported if ``message`` has fields of a newer version. Protobuf would ignore them."""
    unknown = UnknownFieldSet(message)
    if len(unknown):
        number = unknown[0].field_number
        raise Unsupported(f"{name}: field number {number} is unknown to this worker; omit it, or use a newer worker")


def pack_settings(settings: SamplingSettings) -> decode_pb2.SamplingSettings:
    """A message with the settings that differ from the defaults.

    Raises Unsupported for a setting that cannot be sent.
    """
    defaults = SamplingSettings()
    changed: dict[str, Any] = {}
    for name in (field.name for field in fields(settings)):
        value = getattr(settings, name)
        if value != getattr(defaults, name):
            if name not in FIELDS:
                raise Unsupported(f"{name} cannot be sent to a worker; use an engine in this process")
            changed[name] = _PACK.get(name, _identity)(value)
    try:
        return decode_pb2.SamplingSettings(**changed)
    except (ValueError, TypeError) as error:  # a number beyond the field's type
        raise Unsupported(f"sampling settings cannot be sent: {error}") from None


def _pack_words(words: Sequence[Sequence[int]]) -> list[bytes]:
    return [pack_tokens(to_tokens(word, f"bad_words[{index}]")) for index, word in enumerate(words)]


def _pack_grammar(grammar: Grammar) -> decode_pb2.Grammar:
    return decode_pb2.Grammar(kind=grammar.kind, text=grammar.text)


def _read_grammar(message: decode_pb2.Grammar) -> Grammar:
    require_known(message, "sampling.grammar")
    return Grammar(message.kind, message.text)


def _check_limits(message: decode_pb2.SamplingSettings) -> None:
    if message.HasField("max_new_tokens"):
        limits.check_new_tokens("sampling.max_new_tokens", message.max_new_tokens)
    limits.check_stops("sampling.stop", message.stop)
    check_range("sampling.bad_words: the number of sequences", len(message.bad_words), 0, limits.MAX_BAD_WORDS)
    for name, most in (("logit_bias", limits.MAX_BIASES), ("stop_token_ids", limits.MAX_STOP_TOKENS)):
        check_range(f"sampling.{name}", len(getattr(message, name)), 0, most, ": the number of tokens")


def _read_words(words: Sequence[bytes]) -> tuple[tuple[int, ...], ...]:
    return tuple(_read_word(f"sampling.bad_words[{index}]", word) for index, word in enumerate(words))


def _read_word(field: str, word: bytes) -> tuple[int, ...]:
    tokens = unpack_tokens(word, field)
    check_range(f"{field}: the number of tokens", len(tokens), 1, limits.MAX_BAD_WORD)
    return tuple(tokens.tolist())


def _identity(value: Any) -> Any:
    return value


_PACK: dict[str, Callable[[Any], Any]] = {"bad_words": _pack_words, "grammar": _pack_grammar, "logit_bias": dict}
_READ: dict[str, Callable[[Any], Any]] = {
    "bad_words": _read_words,
    "grammar": _read_grammar,
    "logit_bias": lambda biases: tuple(sorted(biases.items())),
    "stop": tuple,
    "stop_token_ids": tuple,
}
