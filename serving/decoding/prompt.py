"""A prompt as text or as a conversation, to the target's tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jinja2 import TemplateError

from datastore.errors import InvalidArgument
from serving.decoding.target import Target


def has_template(target: Target) -> bool:
    """Whether the model says how conversations are written."""
    return bool(getattr(target.tokenizer, "chat_template", None))


def encode_text(target: Target, text: str) -> list[int]:
    """The tokens of a text that is to be continued. Raises InvalidArgument: the target has no tokenizer."""
    return list(_tokenizer(target)(text)["input_ids"])


def encode_chat(target: Target, messages: Sequence[tuple[str, str]]) -> list[int]:
    """The tokens of a conversation, each message a (role, content), up to where the model's answer begins.

    Raises:
        InvalidArgument: the target has no chat template, or the template refuses the conversation.
    """
    tokenizer = _tokenizer(target)
    if not has_template(target):
        raise InvalidArgument(f"model {target.name} has no chat template; send the prompt as text")
    conversation = [{"role": role, "content": content} for role, content in messages]
    try:
        encoded = tokenizer.apply_chat_template(conversation, add_generation_prompt=True, return_dict=True)
    except TemplateError as error:
        raise InvalidArgument(f"the chat template of model {target.name} refuses the conversation: {error}") from error
    return list(encoded["input_ids"])


def _tokenizer(target: Target) -> Any:
    if target.tokenizer is None:
        raise InvalidArgument(f"model {target.name} was loaded without a tokenizer; send the prompt as token ids")
    return target.tokenizer
