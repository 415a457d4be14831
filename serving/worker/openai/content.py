"""The content of a message: a text, or a list of parts."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, FailFast, Field, field_validator, model_validator

from suffolk.build_index.conversation import REASONING

MAX_PARTS = 1024
"""Most text parts of a message."""
_TEXT_KINDS = ("text", "input_text", "output_text", "refusal")


class _FirstError(FailFast):
    __hash__ = object.__hash__  # ``typing.Union`` hashes the annotations of its members


FIRST_ERROR = _FirstError()
"""Stops at the first invalid item, so that a long list gives only one error."""


class TextPart(BaseModel):
    """A part of a message's content: a text, with its type from chats or from responses, or the refusal of an earlier answer.

    Parts with the reasoning of an earlier answer are accepted, but left out of the prompt, like reasoning items of responses.
    """

    model_config = ConfigDict(strict=True, extra="ignore")

    type: str
    text: str | None = None
    refusal: str | None = None

    @field_validator("type")
    @classmethod
    def _check_type(cls, kind: str) -> str:
        if kind not in (*_TEXT_KINDS, *REASONING):
            raise ValueError(
                f"the model takes text alone, in parts of type {', '.join(_TEXT_KINDS)}; leave this part out"
            )
        return kind

    @model_validator(mode="after")
    def _check_text(self) -> TextPart:
        if self.type in _TEXT_KINDS and (self.refusal if self.type == "refusal" else self.text) is None:
            raise ValueError(f"a part of type {self.type} needs {'refusal' if self.type == 'refusal' else 'text'}")
        return self


Content = str | Annotated[list[TextPart], Field(max_length=MAX_PARTS), FIRST_ERROR]


def text_of(content: Content | None) -> str:
    """The text of a message's content. Parts are joined by line ends, as builds, vLLM and llama.cpp do."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.text or part.refusal or "" for part in content if part.type in _TEXT_KINDS)
