"""Converts prompts to the target's tokens. Imports no torch."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from jinja2 import TemplateError

from suffolk.build_index.conversation import whole
from suffolk.datastore.context_query import Tokens
from suffolk.datastore.duty_cycle import DutyCycle
from suffolk.datastore.errors import Field, InvalidArgument

if TYPE_CHECKING:
    from suffolk.serving.decoding.engine.model.target import Target

Message = tuple[str, str] | Mapping[str, str]
"""A message of a conversation: (role, content), or {"role": role, "content": content}."""
Prompt = str | Sequence[Message] | Tokens
"""A text to continue, a conversation to answer, or token ids."""
FORMS = (
    "give a text, a list of messages, each {'role': role, 'content': content} or (role, content) of strings, "
    "or a flat list of token ids"
)


SHORT = 1 << 11
"""The most characters of a text that is encoded at once, without a turn. This takes less than a millisecond."""
PIECE = 1 << 15
"""Characters of a piece of a long text. Encoding a piece takes some 20 ms."""
_END = 8
"""The encoding of a continuation may depend on this many last tokens of the prompt."""
LONG_TEXTS = DutyCycle(0.5)
"""Texts of more than ``SHORT`` characters are encoded one at a time, in half of the time at most."""


class RejectedChat(InvalidArgument):
    """A conversation that the chat template rejects."""


class PromptTooLong(InvalidArgument):
    """A text has more tokens than can be used."""


def read_prompt(prompt: Prompt) -> str | list[tuple[str, str]] | npt.NDArray[np.int64]:
    """``prompt`` as a text, a conversation, or token ids int64[n]. A single row [1, n] of ids is accepted too.

    Raises:
        InvalidArgument: ``prompt`` has another form, or a text has a lone surrogate (half a character), which tokenizers reject.
    """
    if isinstance(prompt, str):
        return whole_text("the prompt", prompt)
    if isinstance(prompt, tuple | list) and prompt and isinstance(prompt[0], tuple | Mapping):
        return [_message(f"message {at}", each) for at, each in enumerate(prompt)]
    if isinstance(prompt, Mapping):
        raise InvalidArgument(Field("the prompt"), f" is of type {type(prompt).__name__}; give its input_ids")
    return token_ids("the prompt", prompt, FORMS)


def encode(target: Target, prompt: Prompt) -> npt.NDArray[np.int64]:
    """The tokens of ``prompt``, int64[n]. Raises the errors of ``read_prompt``, ``encode_text`` and ``encode_chat``."""
    found = read_prompt(prompt)
    if isinstance(found, str):
        return np.array(encode_text(target, found), np.int64)
    if isinstance(found, list):
        return np.array(encode_chat(target, found), np.int64)
    return found


def has_template(target: Target) -> bool:
    """Whether the model has a chat template."""
    return bool(getattr(target.tokenizer, "chat_template", None))


def encode_text(target: Target, text: str, special_tokens: bool = True, limit: int | None = None) -> list[int]:
    """The tokens of a text to continue. With ``special_tokens``, they include the tokens that the tokenizer adds.

    Long texts of different threads are encoded one at a time. So cores stay free for the step loop.

    Args:
        limit: the tokens that fit; None for no limit. A text of more than ``PIECE`` characters and more than twice this number
            of tokens is refused before all of it is encoded. The caller refuses other long texts.

    Raises InvalidArgument: the target has no tokenizer. PromptTooLong: the text is refused because of ``limit``.
    """
    tokenizer = _tokenizer(target)
    if limit is not None:
        _require_fit(tokenizer, text, limit)
    return _encode(tokenizer, text, special_tokens)


def encode_chat(
    target: Target,
    messages: Sequence[tuple[str, str] | Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None = None,
    limit: int | None = None,
    *,
    continues: bool = False,
    generation_prompt: bool = True,
    special_tokens: bool = False,
    variables: Mapping[str, Any] | None = None,
) -> list[int]:
    """The tokens of a conversation, with the template's prompt for the model's answer.

    Args:
        messages: (role, content) pairs, or other messages that the chat template accepts.
        tools: functions that the model may call, in OpenAI's form.
        limit, special_tokens: as in ``encode_text``.
        continues: the answer continues the last message, which is left open.
        generation_prompt: whether the prompt for the answer follows the messages. Ignored with ``continues``.
        variables: further variables of the template.

    Raises:
        InvalidArgument: the target has no tokenizer or no chat template, or a variable has a reserved name.
        RejectedChat: the template rejects the conversation.
    """
    tokenizer = _tokenizer(target)
    if not has_template(target):
        raise InvalidArgument(f"model {target.name} has no chat template; send the prompt as text")
    conversation = [
        dict(message) if isinstance(message, Mapping) else dict(zip(("role", "content"), message, strict=True))
        for message in messages
    ]
    taken = {"messages", *inspect.signature(tokenizer.apply_chat_template).parameters}
    if reserved := sorted(taken & set(variables or {})):
        raise InvalidArgument(
            Field("chat_template_kwargs"), f" has {reserved[0]!r}, which is no variable of a template; omit it"
        )
    try:
        text = tokenizer.apply_chat_template(
            conversation,
            tools=list(tools) if tools else None,
            add_generation_prompt=generation_prompt and not continues,
            continue_final_message=continues,
            tokenize=False,
            **(variables or {}),
        )
    except (TemplateError, TypeError, ValueError, KeyError, AttributeError) as error:  # fields of another type
        raise RejectedChat(f"the chat template of model {target.name} rejects the conversation: {error}") from error
    # the JSON of a call's arguments may spell half of a surrogate pair
    return encode_text(target, whole(text), special_tokens, limit)


def encode_continuation(target: Target, prompt: npt.NDArray[np.int32], text: str) -> list[int]:
    """The tokens of ``text`` as a continuation of the tokens of ``prompt``, without special tokens.

    Some tokenizers put a space before a text, but not inside a text. So the text is encoded together with the end of the prompt.
    If a token then covers parts of both, the text is encoded alone, because the prompt's tokens cannot change.

    Raises InvalidArgument: the target has no tokenizer.
    """
    tokenizer = _tokenizer(target, "prediction")
    end = tokenizer.decode(prompt[-_END:].tolist())
    before, both, alone = (_encode(tokenizer, each, False) for each in (end, end + text, text))
    return both[len(before) :] if before and both[: len(before)] == before else alone


def whole_text(name: str, text: str) -> str:
    """``text`` itself. Raises InvalidArgument if it has a lone surrogate. The message calls the text ``name``."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            Field(name),
            f" has a surrogate, {text[error.start]!r}, at {error.start}: half a character, or a byte that is no UTF-8; "
            "convert it",
        ) from None
    return text


def token_ids(name: str, ids: Any, forms: str) -> npt.NDArray[np.int64]:
    """``ids`` as int64[n].

    Raises InvalidArgument for another form. In the message, ``name`` is the name of the ids and ``forms`` the allowed forms.
    """
    try:
        array = np.asarray(ids)
    except (TypeError, ValueError, OverflowError) as error:  # ragged lists, a tensor that is not on the CPU
        raise InvalidArgument(Field(name), f" cannot be read as token ids ({error}); {forms}") from None
    if array.ndim == 2 and len(array) == 1:
        array = array[0]
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InvalidArgument(
            Field(name),
            f", of type {type(ids).__name__}, is an array of {array.dtype} of shape {list(array.shape)}; {forms}",
        )
    return array.astype(np.int64)


def _encode(tokenizer: Any, text: str, special_tokens: bool) -> list[int]:
    with LONG_TEXTS.work() if len(text) > SHORT else nullcontext():
        return list(tokenizer(text, add_special_tokens=special_tokens)["input_ids"])


def _require_fit(tokenizer: Any, text: str, limit: int) -> None:
    """Count the tokens of pieces of a long text, and stop when they are too many.

    Cutting a text adds a few tokens to each piece. The pieces may have twice ``limit`` tokens, so a text of at most ``limit``
    tokens is never refused.
    """
    if len(text) <= PIECE:
        return
    total = 0
    for begin in range(0, len(text), PIECE):
        total += len(_encode(tokenizer, text[begin : begin + PIECE], False))
        if total > 2 * limit:
            raise PromptTooLong(
                Field("the prompt"), f" is too long: this model's maximum context length is {limit} tokens; shorten it"
            )


def _tokenizer(target: Target, text: str = "prompt") -> Any:
    if target.tokenizer is None:
        raise InvalidArgument(f"model {target.name} was loaded without a tokenizer; send the {text} as token ids")
    return target.tokenizer


def _message(name: str, message: Any) -> tuple[str, str]:
    match message:
        case (str() as role, str() as content) | {"role": str() as role, "content": str() as content} if (
            len(message) == 2
        ):
            return whole_text(f"{name}'s role", role), whole_text(f"{name}'s content", content)
    raise InvalidArgument(Field(name), f" of the prompt is {message!r}; {FORMS}")
