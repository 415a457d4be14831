"""Encodes rows of a corpus as documents, and conversations by the model's chat template."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from jinja2 import TemplateError

from suffolk.build_index.conversation import Message
from suffolk.datastore.errors import InvalidArgument, Unsupported
from suffolk.serving.decoding.drafters.training.rows import Row
from suffolk.serving.decoding.engine.loop.prompt import encode_text
from suffolk.serving.decoding.engine.model.target import Target

ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True)
class Rendered:
    """A text, and the spans (begin, end) of its answers, in characters. Spans include end marks."""

    text: str
    answers: tuple[tuple[int, int], ...]


def render(tokenizer: Any, messages: Sequence[Message]) -> list[Rendered]:
    """Render the conversation up to its last answer, and locate its answers.

    The conversation is rendered up to each answer, with and without that answer, and both texts are compared. Reasoning templates
    render an answer differently if other answers follow. Each answer that differs gives a further text, which ends with this
    answer. An answer without a message before it is skipped.

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
            asked = _apply(tokenizer, messages[:number], asking=True)
            begin = len(os.path.commonprefix([asked, written]))
            spans.setdefault(whole if whole.startswith(written) else written, []).append((begin, len(written)))
    return [Rendered(text, tuple(answers)) for text, answers in spans.items()]


def render_question(tokenizer: Any, messages: Sequence[Message]) -> str:
    """Render the conversation up to the beginning of its last answer. Raises the errors of ``render``."""
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


@dataclass(frozen=True, slots=True)
class TrainingDocument:
    """A text as tokens.

    Attributes:
        tokens: int32[n].
        counted: bool[n], whether the loss of each token counts.
        key: the SHA-256 of the document's row, 32 bytes.
    """

    tokens: npt.NDArray[np.int32]
    counted: npt.NDArray[np.bool_]
    key: bytes


def encode_row(target: Target, row: Row) -> list[TrainingDocument]:
    """Encode a row. In a text all tokens count. In a conversation only the answers count (``render``).

    Raises:
        InvalidArgument: a conversation has no answer. The message is the reason only, without the row.
        Unsupported: the tokenizer gives ids outside the model's vocabulary, or no offsets.
    """
    key = key_of(row.content)
    if row.text is not None:
        tokens = encode_text(target, row.text)
        return [make_document(target, tokens, np.ones(len(tokens), np.bool_), key)]
    return [
        make_document(target, *_encode_rendered(target, rendered), key)
        for rendered in render(target.tokenizer, row.messages or ())
    ]


def make_document(target: Target, tokens: Any, counted: npt.NDArray[np.bool_], key: bytes) -> TrainingDocument:
    """A document of ``tokens``. Raises Unsupported if a token is outside the model's vocabulary."""
    ids = np.asarray(tokens, np.int32)
    if len(ids) and int(ids.max()) >= target.vocab_size:
        raise Unsupported(
            f"model {target.name}: its tokenizer gives the id {int(ids.max())}, and its vocabulary has {target.vocab_size}; "
            "use the tokenizer that belongs to it"
        )
    return TrainingDocument(ids, counted, key)


def key_of(content: str) -> bytes:
    """The SHA-256 of ``content``, 32 bytes."""
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).digest()


def is_held_out(key: bytes, share: float) -> bool:
    """Whether the document of ``key`` is held out from training. ``share``: the share of all documents that are held out."""
    return int.from_bytes(key[:8], "big") < share * 2**64


def _encode_rendered(target: Target, rendered: Rendered) -> tuple[list[int], npt.NDArray[np.bool_]]:
    """The tokens, and whether each is part of an answer. An answer ends with its end token."""
    try:
        encoded = target.tokenizer(rendered.text, add_special_tokens=False, return_offsets_mapping=True)
    except NotImplementedError as error:
        raise Unsupported(
            f"model {target.name}: its tokenizer gives no character offsets; save it as tokenizer.json"
        ) from error
    tokens = list(encoded["input_ids"])
    begins = np.array([begin for begin, _ in encoded["offset_mapping"]], np.int64)
    counted = np.zeros(len(tokens), np.bool_)
    for begin, end in rendered.answers:
        inside = np.flatnonzero((begins >= begin) & (begins < end))
        ends = [place for place in inside.tolist() if tokens[place] in target.eos_ids]
        counted[inside[inside <= ends[0]] if ends else inside] = True
    return tokens, counted
