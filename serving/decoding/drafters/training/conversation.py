"""Renders conversations with a model's chat template, and locates the answers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateError

from suffolk.build_index.conversation import Message
from suffolk.datastore.errors import InvalidArgument

ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True)
class Rendered:
    """A text, and the spans (begin, end) of its answers, in characters. Spans include end marks."""

    text: str
    answers: tuple[tuple[int, int], ...]


def render(tokenizer: Any, messages: Sequence[Message]) -> list[Rendered]:
    """Render the conversation up to its last answer, and locate its answers.

    The conversation is rendered up to each answer, with and without that answer, and both texts are compared. Reasoning templates
    render an answer differently if others follow. Each of these answers gives a further text, which ends with the answer. An
    answer without a message before it is skipped.

    Raises:
        InvalidArgument: there is no answer or no template, or the template fails.
    """
    last = max((number for number, message in enumerate(messages) if message["role"] == ASSISTANT), default=0)
    if last == 0:
        raise InvalidArgument("no answer of an assistant to a question")
    whole = _apply(tokenizer, messages[: last + 1])
    spans: dict[str, list[tuple[int, int]]] = {}
    for number in range(1, last + 1):
        if messages[number]["role"] == ASSISTANT:
            written = _apply(tokenizer, messages[: number + 1])
            begin = _common(_apply(tokenizer, messages[:number], asking=True), written)
            spans.setdefault(whole if whole.startswith(written) else written, []).append((begin, len(written)))
    return [Rendered(text, tuple(answers)) for text, answers in spans.items()]


def render_question(tokenizer: Any, messages: Sequence[Message]) -> str:
    """Render the conversation up to the beginning of its last answer. Raises as ``render``."""
    answers = [number for number, message in enumerate(messages) if message["role"] == ASSISTANT]
    question = messages[: answers[-1]] if answers and answers[-1] == len(messages) - 1 else messages
    if not question or question[-1]["role"] == ASSISTANT:
        raise InvalidArgument("no question to answer")
    return _apply(tokenizer, question, asking=True)


def _apply(tokenizer: Any, messages: Sequence[Message], asking: bool = False) -> str:
    if not getattr(tokenizer, "chat_template", None):
        raise InvalidArgument("a conversation, and the model has no chat template")
    try:
        written = tokenizer.apply_chat_template(
            [dict(message) for message in messages], tokenize=False, add_generation_prompt=asking
        )
    except (TemplateError, TypeError, KeyError) as error:  # errors of the template and of its expressions
        raise InvalidArgument(f"the chat template rejects it ({' '.join(str(error).split())})") from error
    return str(written)


def _common(one: str, other: str) -> int:
    """The length of the common prefix of two texts."""
    return len(os.path.commonprefix([one, other]))
