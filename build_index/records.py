"""Converts a record, from a JSON line or a Parquet row, to the content of a document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from suffolk.build_index.chat_template import ChatTemplate
from suffolk.build_index.conversation import FIELDS, Conversation, find_conversation
from suffolk.build_index.exchange import find_answers, find_exchange
from suffolk.datastore.errors import InvalidArgument

RECORDING_FORMAT = 1
"""The format of lines that ``--record`` writes (``suffolk.serving.decoding.replay.recording``)."""


@dataclass(frozen=True, slots=True)
class RecordRules:
    """Rules for reading records with conversations and recorded tokens.

    Attributes:
        template: the model's chat template; None if there is none.
        fingerprint: fingerprint of the build's tokenizer; None if there is none.
        vocab_size: exclusive upper bound of ids.
    """

    template: ChatTemplate | None = None
    fingerprint: str | None = None
    vocab_size: int = 0


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A record that yields no document, and the reason."""

    reason: str


def read_chat(record: Any, rules: RecordRules, place: str) -> str | LeftOut | None:
    """Render a conversation, or a request with its first answer, as text. None if the record has neither.

    If a response has no request, its first answer is the text. Returns ``LeftOut`` for a request without an answer, and for a
    conversation that has no messages or that the template rejects.

    Raises:
        InvalidArgument: a message is malformed, or there is no chat template.
    """
    found = find_exchange(record, place) or find_conversation(record, place)
    if isinstance(found, Conversation):
        return _render(found, rules, place)
    answers = find_answers(record, place) if found is None else found.answers
    if answers is None:
        return None
    if not answers:
        return LeftOut("a request without an answer")
    first = answers[0].content
    if found is None or isinstance(found.prompt, str):
        prompt = "" if found is None else str(found.prompt)
        return prompt + (first if isinstance(first, str) else str(first["content"]))
    answer = {"role": "assistant", "content": first} if isinstance(first, str) else first
    return _render(Conversation((*found.prompt.messages, answer), found.prompt.tools), rules, place)


def is_chat(record: Any) -> bool:
    """Whether a record has a field for ``read_chat``."""
    if not isinstance(record, dict):
        return False
    try:
        return (
            any(isinstance(record.get(name), list | str | bytes) for name in FIELDS)
            or find_exchange(record, "") is not None
            or find_answers(record, "") is not None
        )
    except InvalidArgument:  # the record is malformed; the build reports the place
        return True


def is_recording(record: Any) -> bool:
    """Whether a record is a line of ``--record``."""
    return isinstance(record, dict) and "recording" in record and "generated" in record


def read_recording(record: Any, rules: RecordRules, place: str) -> list[int]:
    """The tokens of a recorded prompt and its answer.

    Raises:
        InvalidArgument: the tokenizer or format does not match, or an id is outside of the vocabulary.
    """
    if record["recording"] != RECORDING_FORMAT:
        raise InvalidArgument(
            f"{place}: a recording of format {record['recording']!r}; this version reads {RECORDING_FORMAT}"
        )
    if record.get("tokenizer") != rules.fingerprint:
        raise InvalidArgument(
            f"{place}: recorded with tokenizer {short_mark(record.get('tokenizer'))}, but the datastore has "
            f"{short_mark(rules.fingerprint)}; give the recorded model's tokenizer with --tokenizer"
        )
    ids: list[int] = []
    for name in ("prompt", "generated"):
        part = record.get(name)
        if not isinstance(part, list):
            raise InvalidArgument(f"{place}: field '{name}' is of type {type(part).__name__}, not a list of token ids")
        ids += part
    odd = next((each for each in ids if type(each) is not int or not 0 <= each < rules.vocab_size), None)
    if odd is not None:
        raise InvalidArgument(f"{place}: {odd!r} is not a token id below {rules.vocab_size}; remove the line")
    return ids


def _render(conversation: Conversation, rules: RecordRules, place: str) -> str | LeftOut:
    if not conversation.messages:
        return LeftOut("a conversation without messages")
    if rules.template is None:
        raise InvalidArgument(
            f"{place}: a conversation, and the tokenizer has no chat template; give a model folder with a template as "
            "--tokenizer, or the text's field with --text-field and --records text"
        )
    try:
        return rules.template.render(conversation.messages, conversation.tools)
    except InvalidArgument as refusal:
        return LeftOut(str(refusal))


def short_mark(fingerprint: Any) -> str:
    """The beginning of a tokenizer's fingerprint, for messages."""
    return str(fingerprint)[:12] if fingerprint else "none"
