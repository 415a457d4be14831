"""A conversation as its model's chat template writes it, and which characters of that are the model's to write."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateError

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.drafters.training.rows import Message

ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True)
class Rendered:
    """A text with the spans (begin, end), in characters, that answers take in it, the marks that end them included."""

    text: str
    answers: tuple[tuple[int, int], ...]


def render(tokenizer: Any, messages: Sequence[Message]) -> list[Rendered]:
    """The conversation up to its last answer, and where its answers are.

    Nothing is known of the template: it is asked for the conversation up to each answer, with and without that answer, and the
    texts are compared. A template that writes an answer differently once others follow (as those do that drop its reasoning) gives
    one more text for each such answer, which ends with it. An answer that nothing comes before is not counted.

    Raises:
        InvalidArgument: no answer, no template, or the template refuses it.
    """
    last = max((number for number, message in enumerate(messages) if message["role"] == ASSISTANT), default=0)
    if last == 0:
        raise InvalidArgument("no answer of an assistant behind a question")
    whole = _apply(tokenizer, messages[: last + 1])
    spans: dict[str, list[tuple[int, int]]] = {}
    for number in range(1, last + 1):
        if messages[number]["role"] == ASSISTANT:
            written = _apply(tokenizer, messages[: number + 1])
            begin = _common(_apply(tokenizer, messages[:number], asking=True), written)
            spans.setdefault(whole if whole.startswith(written) else written, []).append((begin, len(written)))
    return [Rendered(text, tuple(answers)) for text, answers in spans.items()]


def render_question(tokenizer: Any, messages: Sequence[Message]) -> str:
    """The conversation without its last answer, up to where the model begins to write it. Raises as ``render``."""
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
    except (TemplateError, TypeError, KeyError) as error:  # the template's own, and what its expressions raise
        raise InvalidArgument(f"the chat template refuses it ({' '.join(str(error).split())})") from error
    return str(written)


def _common(one: str, other: str) -> int:
    """How many characters both begin with."""
    return len(os.path.commonprefix([one, other]))
