"""Bodies of OpenAI requests. Values of known fields must have the right type. Other fields: ``known_fields.py``.

``SamplingSettings`` checks the ranges of sampling settings. Null means the default, as in OpenAI's clients.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from suffolk.serving.net.http_body import InvalidField
from suffolk.serving.net.json_fields import OR_NULL, ClosedObject, Int, NullsBody, whole
from suffolk.serving.worker import limits
from suffolk.serving.worker.openai.content import FIRST_ERROR, Content
from suffolk.serving.worker.openai.known_fields import Body
from suffolk.serving.worker.openai.other_fields import INSTEAD_IN_COMPLETIONS
from suffolk.serving.worker.traces import MAX_FOLLOWING, MAX_PASSAGES

NO_LIMIT = -1
"""Asks for as many tokens as fit. Clients of llama.cpp and LM Studio send it."""
RANDOM = -1
"""Asks for a random seed, as in vLLM and llama.cpp."""


def _given(seed: Any) -> Any:
    """``seed``, a whole float as an integer, or None if it is ``RANDOM``."""
    return None if seed == RANDOM else whole(seed)


Count = Annotated[Int, Field(ge=1)]
Seed = Annotated[Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)] | None, BeforeValidator(_given)]
TokenId = Annotated[int, Field(ge=0, lt=1 << 31)]
"""Never a float: a prompt has many ids, and Python would have to check each float."""


def no_limit(value: Any) -> Any:
    """``value``, or None if it is ``NO_LIMIT``."""
    return None if value == NO_LIMIT else value


MAX_TEXTS = 128
"""Most texts of one request: ``n`` times the number of prompts."""
MAX_CHOICES = 1024
"""Most texts of ``choice`` and ``guided_choice``."""
MAX_LOGPROBS = 20
"""Most alternative tokens per position in log-probabilities."""


# Parsing holds Python's lock, so lists end where their limits are, not after megabytes of items.
TokenIds = Annotated[list[TokenId], Field(max_length=limits.MAX_PROMPT), FIRST_ERROR]
MAX_PATTERN = 1024
"""Most tokens of a text whose passages are searched."""


class StreamOptions(Body):
    """``include_usage``: a last chunk with usage. ``continuous_usage_stats``: usage in every chunk."""

    path = "stream_options."

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class PredictedOutput(Body):
    """A prediction: the expected answer, or most of it."""

    type: Literal["content"]
    content: Content


class StructuredOutputs(ClosedObject):
    """vLLM's constraints of a text; one of them may be set."""

    path = "structured_outputs."
    off = (
        "disable_additional_properties",
        "disable_any_whitespace",
        "disable_fallback",
        "structural_tag",
        "whitespace_pattern",
    )

    json_schema: str | dict[str, Any] | None = Field(None, alias="json")
    regex: str | None = None
    choice: Annotated[list[str], Field(max_length=MAX_CHOICES)] | None = None
    grammar: str | None = None
    json_object: bool | None = None


class DraftFields(ClosedObject):
    """Suffolk's own fields of a request: extra_body={"suffolk": {...}} in OpenAI's clients.

    ``drafter``: "none" for plain decoding. ``datastores``: names of datastores to search. ``remember``: if false, the
    text is not recorded and drafters do not learn from it. ``group``: the group that live datastores search first, and
    that a remembered text is added to. ``trace``: add the trace of each step (docs/reference/step-trace.md).
    Unlike OpenAI's fields, unknown ones are errors, because a misspelled ``remember``
    would keep a private text.
    """

    path = "suffolk."

    drafter: str | None = None
    max_nodes: Int | None = None
    datastores: Annotated[list[str], Field(max_length=limits.MAX_DATASTORES)] | None = None
    remember: bool | None = None
    group: str | None = None
    trace: bool | None = None


class GenerationBody(Body):
    """The fields that chat and text completions share."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[Int, Field(ge=1, le=MAX_TEXTS)] | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Annotated[Int, Field(ge=-1)] | None = None
    min_p: float | None = None
    seed: Seed = None
    stop: str | Annotated[list[str], Field(max_length=limits.MAX_STOPS)] | None = None
    stop_token_ids: Annotated[list[Int], Field(max_length=limits.MAX_STOP_TOKENS)] | None = None
    include_stop_str_in_output: bool | None = None
    min_tokens: Int | None = None
    skip_special_tokens: bool | None = None
    bad_words: Annotated[list[str], Field(max_length=limits.MAX_BAD_WORDS)] | None = None
    truncate_prompt_tokens: Annotated[Int, Field(ge=-1)] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: Annotated[dict[str, float], Field(max_length=limits.MAX_BIASES)] | None = None
    ignore_eos: bool | None = None
    prediction: PredictedOutput | None = None
    response_format: dict[str, Any] | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: str | dict[str, Any] | None = None
    guided_regex: str | None = None
    guided_choice: Annotated[list[str], Field(max_length=MAX_CHOICES)] | None = None
    guided_grammar: str | None = None
    grammar: str | None = None
    json_schema: str | dict[str, Any] | None = None
    prompt_logprobs: Annotated[Int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    return_tokens_as_token_ids: bool | None = None
    suffolk: DraftFields | None = None

    @field_validator("stop", mode="before")
    @classmethod
    def _check_stop(cls, value: object) -> object:
        if any(type(each) is int for each in (value if isinstance(value, list) else [value])):
            raise InvalidField("stop", " has token ids; give them as stop_token_ids")
        return value

    @model_validator(mode="after")
    def _check_stream(self) -> GenerationBody:
        if self.stream_options is not None and not self.stream:
            raise InvalidField("stream_options", ": it needs stream: true")
        if self.prompt_logprobs is not None and self.stream:
            raise InvalidField("prompt_logprobs", ": a stream has none; omit it or stream")
        return self

    @property
    def length_field(self) -> str:
        """Name of the field that limits the tokens of the answer, for error messages."""
        return "max_tokens" if self.max_completion_tokens is None else "max_completion_tokens"

    @property
    def length(self) -> int | None:
        """Most tokens of the answer, if the request says it."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens


class Message(BaseModel):
    """A message of a conversation. Further fields, for example tool calls, are passed on to the chat template."""

    model_config = ConfigDict(strict=True, extra="allow")
    role: str
    content: Content | None = None


Messages = Annotated[list[Message], Field(max_length=limits.MAX_MESSAGES), FIRST_ERROR]


Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How much a model thinks. The chat template decides what the value does."""


class TemplateFields(Body):
    """How messages become a prompt, as in vLLM."""

    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    add_special_tokens: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: Effort | None = None

    @property
    def prompt_field(self) -> str:
        """Name of the field with the messages, for error messages."""
        return "messages"


class ToolFields(Body):
    """The functions that an answer may call, as in OpenAI's API: ``tools``, or their older name ``functions``."""

    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    functions: list[dict[str, Any]] | None = None
    function_call: str | dict[str, Any] | None = None

    @model_validator(mode="after")
    def _check_functions(self) -> ToolFields:
        if self.functions and self.tools:
            raise InvalidField("functions", ": it is the older name of tools; give one of them")
        if self.function_call not in (None, "none", "auto") and not self.functions:
            raise InvalidField("function_call", ": it needs functions; use tool_choice with tools")
        return self

    @property
    def function_paths(self) -> list[str]:
        """The path of each function in the request."""
        if self.functions:
            return [f"functions[{at}]" for at in range(len(self.functions))]
        return [f"tools[{at}].function" for at in range(len(self.tools or ()))]


class ChatBody(GenerationBody, TemplateFields, ToolFields):
    """POST /v1/chat/completions."""

    messages: Messages
    logprobs: bool | None = None
    top_logprobs: Annotated[Int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    include_reasoning: bool | None = None
    separate_reasoning: bool | None = None
    reasoning_format: Literal["none", "auto", "deepseek", "deepseek-legacy"] | None = None
    format_field: ClassVar[str] = "response_format"

    _read_no_limit = field_validator("max_tokens", "max_completion_tokens", mode="before")(no_limit)

    @property
    def splits_reasoning(self) -> bool:
        """Whether reasoning is separate from the content, by the fields of SGLang and llama.cpp."""
        return self.separate_reasoning is not False and self.reasoning_format != "none"


class CompletionBody(GenerationBody):
    """POST /v1/completions. ``prompt``: a text, token ids, or a list of texts or of token ids."""

    instead = INSTEAD_IN_COMPLETIONS

    prompt: (
        str
        | TokenIds
        | Annotated[list[str], Field(max_length=MAX_TEXTS), FIRST_ERROR]
        | Annotated[list[TokenIds], Field(max_length=MAX_TEXTS), FIRST_ERROR]
    )
    max_tokens: Annotated[Int, Field(ge=NO_LIMIT)] | None = None
    max_completion_tokens: Annotated[Int, Field(ge=NO_LIMIT)] | None = None
    logprobs: Annotated[Int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    echo: bool | None = None
    suffix: str | None = None
    best_of: Int | None = None

    @property
    def length(self) -> int | None:
        found, extra = super().length, self.model_extra or {}
        if found is None and NO_LIMIT in (extra.get("n_predict"), extra.get("num_predict")):
            return NO_LIMIT  # llama.cpp's and Ollama's name; other values of it are refused
        return found


class TokenizeBody(TemplateFields, ToolFields):
    """POST /tokenize: a ``prompt`` to continue, or ``messages`` to answer, or the body of a chat or completion."""

    unused = frozenset(GenerationBody.model_fields)
    instead = {"input": "prompt", "text": "prompt"}

    model: str | None = None
    prompt: str | None = None
    messages: Messages | None = None
    return_token_strs: bool | None = None


class PassagesBody(NullsBody):
    """POST /suffolk/passages: the end of a text, whose longest part is searched in ``datastores`` (default: all)."""

    tokens: Annotated[list[TokenId], Field(min_length=1, max_length=MAX_PATTERN), FIRST_ERROR]
    datastores: Annotated[list[str], Field(max_length=limits.MAX_DATASTORES)] | None = None
    limit: Annotated[Int, Field(ge=1, le=MAX_PASSAGES), OR_NULL] = 3
    following: Annotated[Int, Field(ge=0, le=MAX_FOLLOWING), OR_NULL] = 16


class DetokenizeBody(Body):
    """POST /detokenize."""

    model: str | None = None
    tokens: TokenIds
