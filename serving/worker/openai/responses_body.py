"""Bodies of POST /v1/responses, and the chats that they stand for. Nothing is stored between requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from suffolk.serving.net.http_body import InvalidField
from suffolk.serving.net.json_fields import Int
from suffolk.serving.worker import limits
from suffolk.serving.worker.openai.bodies import MAX_LOGPROBS, ChatBody, Count, Effort, GenerationBody, no_limit
from suffolk.serving.worker.openai.content import FIRST_ERROR
from suffolk.serving.worker.openai.known_fields import meant
from suffolk.serving.worker.openai.other_fields import INSTEAD_IN_RESPONSES
from suffolk.serving.worker.openai.responses_items import Item, ResponsesPart, messages_of
from suffolk.serving.worker.openai.responses_tools import callable_tools, full_name

_LOGPROBS = "message.output_text.logprobs"
_INCLUDABLE = (
    _LOGPROBS,
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
)
"""OpenAI's values of ``include``. All values but the first are about things that answers of this worker never have."""
_SUMMARY = Literal["auto", "concise", "detailed"]


class Format(ResponsesPart):
    """``text.format``."""

    path = "text.format."
    other_names = {"json_schema": "schema"}

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    json_schema: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


_FORMAT_FIELDS = {each: "schema" if each == "json_schema" else each for each in Format.model_fields}
"""Attribute of a format -> its name in JSON."""


class Text(ResponsesPart):
    """``text``."""

    path = "text."
    other_names = dict.fromkeys(("json_schema", "response_format", "schema", "type"), "format")

    format: Format | None = None
    verbosity: Literal["medium"] | None = None

    def shown(self) -> dict[str, Any]:
        """As the response shows it. The name of a schema, which OpenAI's API requires, has a default."""
        form = self.format or Format(type="text", schema=None)
        found = {name: getattr(form, key) for key, name in _FORMAT_FIELDS.items() if getattr(form, key) is not None}
        if form.type == "json_schema":
            found = {"name": "response"} | found
        return {"format": found} | ({} if self.verbosity is None else {"verbosity": self.verbosity})


class Reasoning(ResponsesPart):
    """``reasoning``. The effort is a variable of the chat template. There are no summaries: answers have the whole reasoning."""

    path = "reasoning."

    effort: Effort | None = None
    summary: _SUMMARY | None = None
    generate_summary: _SUMMARY | None = None  # the older name of ``summary``


class ResponsesBody(GenerationBody):
    """POST /v1/responses."""

    instead = INSTEAD_IN_RESPONSES

    n: Annotated[Int, Field(ge=1, le=1)] | None = None
    input: str | Annotated[list[Item], Field(max_length=limits.MAX_MESSAGES), FIRST_ERROR]
    instructions: str | None = None
    max_output_tokens: Count | None = None
    text: Text | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    include: list[str] | None = None
    top_logprobs: Annotated[Int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    truncation: Literal["auto", "disabled"] | None = None  # long conversations are refused, never cut
    max_tool_calls: Int | None = None  # of OpenAI's own tools, which are never called here
    metadata: dict[str, str] | None = None

    _read_no_limit = field_validator("max_output_tokens", mode="before")(no_limit)

    @model_validator(mode="after")
    def _check_support(self) -> ResponsesBody:
        for at, name in enumerate(self.include or ()):
            if name not in _INCLUDABLE:
                near = (
                    f"did you mean {near}?"
                    if (near := meant(name, _INCLUDABLE))
                    else f"give one of {', '.join(_INCLUDABLE)}"
                )
                raise InvalidField(f"include[{at}]", f" is {name!r:.60}; {near}")
        if self.stream_options is not None and self.stream_options.continuous_usage_stats:
            raise InvalidField(
                "stream_options.continuous_usage_stats", ": not supported here; the last event has usage"
            )
        if self.suffolk is not None and self.suffolk.trace:
            raise InvalidField("suffolk.trace", ": responses have no traces; use /v1/chat/completions")
        return self

    @property
    def has_logprobs(self) -> bool:
        """Whether the texts have log-probabilities."""
        return _LOGPROBS in (self.include or ()) or bool(self.top_logprobs)


class ResponsesChat(ChatBody):
    """The chat that a body stands for. Errors name the body's fields."""

    format_field = "text.format"
    tool_paths: list[str]

    @property
    def function_paths(self) -> list[str]:
        return self.tool_paths

    @property
    def length_field(self) -> str:
        return "max_output_tokens"

    @property
    def prompt_field(self) -> str:
        return "input"


def chat_of(body: ResponsesBody) -> ResponsesChat:
    """The chat that ``body`` stands for. Raises InvalidField: an item or a tool has another form."""
    tools = callable_tools(body.tools or ())
    shared = {name: getattr(body, name) for name in GenerationBody.model_fields}
    own = {
        "messages": messages_of(body.instructions, body.input),
        "max_completion_tokens": body.max_output_tokens,
        "tools": None if body.tools is None else [each.chat_tool() for each in tools],
        "tool_paths": [each.path for each in tools],
        "tool_choice": _tool_choice(body.tool_choice),
        "parallel_tool_calls": body.parallel_tool_calls,
        "response_format": _response_format(body.text.format if body.text else None),
        "reasoning_effort": body.reasoning.effort if body.reasoning else None,
        "logprobs": body.has_logprobs,
        "top_logprobs": body.top_logprobs,
    }
    return ResponsesChat.model_construct(**shared | own)


def _tool_choice(choice: str | Mapping[str, Any] | None) -> str | dict[str, Any] | None:
    if choice is None or isinstance(choice, str):
        return choice
    if choice.get("type") == "allowed_tools":
        tools = choice.get("tools")
        listed: Sequence[Any] = tools if isinstance(tools, list) else ()
        functions = [_named(tool) for tool in listed if isinstance(tool, Mapping)]
        return {"type": "allowed_tools", "allowed_tools": {"mode": choice.get("mode"), "tools": functions}}
    return _named(choice)


def _named(choice: Mapping[str, Any]) -> dict[str, Any]:
    """The choice of one function in the form of chats."""
    name, namespace = choice.get("name"), choice.get("namespace")
    if isinstance(name, str) and isinstance(namespace, str):
        name = full_name(namespace, name)
    return {"type": choice.get("type"), "function": {"name": name}}


def _response_format(form: Format | None) -> dict[str, Any] | None:
    return None if form is None else {"type": form.type, "schema": form.json_schema, "strict": form.strict}
