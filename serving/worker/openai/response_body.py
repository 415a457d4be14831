"""Bodies of POST /v1/responses, and the chats that they stand for. Nothing is stored between requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from suffolk.serving.net.http_body import InvalidField
from suffolk.serving.net.json_fields import Int
from suffolk.serving.worker import limits
from suffolk.serving.worker.openai.content import FIRST_ERROR, Content, text_of
from suffolk.serving.worker.openai.schema import MAX_LOGPROBS, ChatBody, Count, GenerationBody, Message, no_limit

if TYPE_CHECKING:
    from typing_extensions import Self

_LOGPROBS = "message.output_text.logprobs"
_INSTEAD = {
    "n": "send several requests",
    "max_tokens": "use max_output_tokens",
    "max_completion_tokens": "use max_output_tokens",
    "response_format": "use text.format",
    "prompt_logprobs": "use /v1/chat/completions",
    "previous_response_id": "this worker stores no responses; send the whole conversation as input",
    "conversation": "this worker stores no conversations; send the whole conversation as input",
    "prompt": "this worker stores no prompts; send the text as instructions or input",
    "background": "this worker stores no responses; leave it out, and use stream",
    "context_management": "leave it out",
}
"""Field that is refused -> what to do instead."""
_TOOLS_ELSEWHERE = (
    *("apply_patch", "code_interpreter", "computer", "computer_use", "computer_use_preview", "custom"),
    *("file_search", "image_generation", "local_shell", "mcp", "namespace", "shell", "tool_search"),
    *("web_search", "web_search_preview"),
)
"""Types of tools that OpenAI runs, or whose calls are no JSON. Agents such as Codex always name some beside their functions."""


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class Item(_Part):
    """An item of the input: a message, a call of a function, its output, or reasoning, which is left out."""

    type: Literal["message", "function_call", "function_call_output", "reasoning"] = "message"
    role: str | None = None
    content: Any = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: Content | None = None


class MessageItem(_Part):
    """An item of type ``message``."""

    role: Literal["user", "assistant", "system", "developer"]
    content: Content


class Format(_Part):
    """``text.format``."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class Text(_Part):
    """``text``."""

    format: Format | None = None
    verbosity: Literal["medium"] | None = None


class Reasoning(BaseModel):
    """``reasoning``. The effort is a variable of the chat template."""

    model_config = ConfigDict(strict=True, extra="ignore")

    effort: str | None = None


class ResponseBody(GenerationBody):
    """POST /v1/responses."""

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
    max_tool_calls: Int | None = None
    metadata: dict[str, str] | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None
    background: bool | None = None
    context_management: Any = None

    _read_no_limit = field_validator("max_output_tokens", mode="before")(no_limit)

    @model_validator(mode="after")
    def _check_support(self) -> Self:
        for name, advice in _INSTEAD.items():
            if getattr(self, name):
                raise InvalidField(name, f": not supported here; {advice}")
        if self.suffolk is not None and self.suffolk.trace:
            raise InvalidField("suffolk.trace", ": responses have no traces; use /v1/chat/completions")
        return self

    @property
    def callable_tools(self) -> list[dict[str, Any]]:
        """The tools without those of ``_TOOLS_ELSEWHERE``, if there are functions too. Without functions all, which is refused."""
        functions = [tool for tool in self.tools or () if tool.get("type") not in _TOOLS_ELSEWHERE]
        return functions or self.tools or []

    @property
    def has_logprobs(self) -> bool:
        """Whether the texts have log-probabilities."""
        return _LOGPROBS in (self.include or ()) or bool(self.top_logprobs)


class ResponseChat(ChatBody):
    """The chat that a body stands for. Errors name the body's fields."""

    function_field = "tools[{}]"
    format_field = "text.format"

    @property
    def length_field(self) -> str:
        return "max_output_tokens"

    @property
    def prompt_field(self) -> str:
        return "input"


def chat_of(body: ResponseBody) -> ResponseChat:
    """The chat that ``body`` stands for. Raises InvalidField: an item or a tool has another form."""
    shared = {name: getattr(body, name) for name in GenerationBody.model_fields}
    own = {
        "messages": _messages(body),
        "max_completion_tokens": body.max_output_tokens,
        "tools": None if body.tools is None else [_tool(tool) for tool in body.callable_tools],
        "tool_choice": _tool_choice(body.tool_choice),
        "parallel_tool_calls": body.parallel_tool_calls,
        "response_format": _response_format(body.text.format if body.text else None),
        "reasoning_effort": body.reasoning.effort if body.reasoning else None,
        "logprobs": body.has_logprobs,
        "top_logprobs": body.top_logprobs,
    }
    return ResponseChat.model_construct(**shared | own)


def _messages(body: ResponseBody) -> list[Message]:
    """The messages, instructions first. A call joins the assistant's message before it."""
    found: list[dict[str, Any]] = []
    if body.instructions:
        found.append({"role": "system", "content": body.instructions})
    items = [Item(role="user", content=body.input)] if isinstance(body.input, str) else body.input
    for at, item in enumerate(items):
        if item.type == "message":
            _add_message(found, _message(f"input[{at}]", item))
        elif item.type == "function_call":
            _add_call(found, f"input[{at}]", item)
        elif item.type == "function_call_output":
            output = {"role": "tool", "tool_call_id": item.call_id, "content": text_of(item.output)}
            found.append(output)
    return [Message(**message) for message in found]


def _message(path: str, item: Item) -> dict[str, Any]:
    try:
        message = MessageItem.model_validate({"role": item.role, "content": item.content})
    except ValidationError:
        text = ": a message has a role (user, assistant, system, developer), and content of text; other content is not supported"
        raise InvalidField(path, text) from None
    role = "system" if message.role == "developer" else message.role
    return {"role": role, "content": text_of(message.content)}


def _add_message(found: list[dict[str, Any]], message: dict[str, Any]) -> None:
    """Templates take one message of the system, at the start, so a second one there joins it."""
    if message["role"] == "system" and [each["role"] for each in found] == ["system"]:
        found[0]["content"] += "\n\n" + message["content"]
    else:
        found.append(message)


def _add_call(found: list[dict[str, Any]], path: str, item: Item) -> None:
    if item.name is None or item.arguments is None:
        raise InvalidField(path, ": a function_call has name and arguments")
    if not found or found[-1]["role"] != "assistant":
        found.append({"role": "assistant", "content": ""})
    function = {"name": item.name, "arguments": item.arguments}
    calls = found[-1].setdefault("tool_calls", [])
    calls.append({"id": item.call_id, "type": "function", "function": function})


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A function in the form of chats. Other tools stay as they are, and are refused there."""
    if tool.get("type") != "function":
        return dict(tool)
    names = ("name", "description", "parameters", "strict")
    return {"type": "function", "function": {name: tool[name] for name in names if tool.get(name) is not None}}


def _tool_choice(choice: str | Mapping[str, Any] | None) -> str | dict[str, Any] | None:
    if choice is None or isinstance(choice, str):
        return choice
    if choice.get("type") == "allowed_tools":
        tools = choice.get("tools")
        listed: Sequence[Any] = tools if isinstance(tools, list) else ()
        own = {"mode": choice.get("mode"), "tools": [_tool(tool) for tool in listed if isinstance(tool, dict)]}
        return {"type": "allowed_tools", "allowed_tools": own}
    return {"type": choice.get("type"), "function": {"name": choice.get("name")}}


def _response_format(form: Format | None) -> dict[str, Any] | None:
    if form is None or form.type != "json_schema":
        return None if form is None else {"type": form.type}
    if form.json_schema is None:
        raise InvalidField("text.format.schema", ": give the schema, a JSON object")
    return {"type": "json_schema", "json_schema": {"schema": form.json_schema, "strict": form.strict}}
