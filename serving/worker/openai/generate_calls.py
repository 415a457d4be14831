"""Converts request bodies to ``GenerateCall``s, the calls of the worker's service. The limits are the same as for gRPC."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from suffolk.build_index.message_forms import generic_messages, lacks_tools, simpler_forms
from suffolk.datastore.arguments import check_size
from suffolk.datastore.checks import check_range
from suffolk.datastore.errors import NotFound
from suffolk.serving.decoding.engine.loop.draft_options import DraftOptions
from suffolk.serving.decoding.engine.loop.prompt import PromptTooLong, RejectedChat, encode_chat, encode_text
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.grammar import Grammar
from suffolk.serving.decoding.engine.sampling.settings import MAX_SEED, SamplingSettings
from suffolk.serving.net.http_body import InvalidField
from suffolk.serving.worker import limits
from suffolk.serving.worker.call import GenerateCall
from suffolk.serving.worker.openai.bodies import (
    MAX_TEXTS,
    NO_LIMIT,
    ChatBody,
    CompletionBody,
    DraftFields,
    GenerationBody,
    Message,
    TemplateFields,
    ToolFields,
)
from suffolk.serving.worker.openai.content import text_of
from suffolk.serving.worker.openai.guided import read_grammar, read_guided
from suffolk.serving.worker.openai.history import (
    call_messages,
    check_message,
    in_call_order,
    message_text,
    template_messages,
)
from suffolk.serving.worker.openai.reasoning import ReasoningMarks, thought_of, with_reasoning
from suffolk.serving.worker.openai.sampling_fields import drops_answer, sampling_settings
from suffolk.serving.worker.openai.token_texts import TokenTexts
from suffolk.serving.worker.openai.tool_choice import ToolChoice, as_tools, read_function_call, read_tool_choice
from suffolk.serving.worker.openai.tool_format import ToolFormat
from suffolk.serving.worker.service import DecodeService

COMPLETION_TOKENS = 16
"""Default token limit of a text completion, as in OpenAI's API. By default, a chat may fill its slot."""


def require_model(service: DecodeService, model: str | None) -> None:
    """Raises NotFound if ``model`` is no name of the model of ``service``. None and an empty name are accepted."""
    if model and model not in service.names:
        raise NotFound(f"model {model!r} does not exist here; this worker serves {', '.join(map(repr, service.names))}")


def read_chat(
    service: DecodeService, body: ChatBody, tool_format: ToolFormat, marks: ReasoningMarks | None
) -> list[GenerateCall]:
    """One ``GenerateCall`` for each text that ``body`` requests. Raises InvalidArgument.

    ``tool_format``: of the model's tool calls. ``marks``: of its reasoning.
    """
    if body.top_logprobs and not body.logprobs:
        raise InvalidField("top_logprobs", ": it needs logprobs: true")
    target, tools = service.engine.target, chosen_tools(body)
    messages = encode_messages(target, body.messages, shown_tools(body), body, _prompt_limit(service, body))
    prompt = _truncated(service, body, messages, body.length or 1)
    grammar = read_guided(body) or read_grammar(body.response_format, body.format_field)
    if tools is not None:
        grammar = tools.grammar(tool_format, target.tokenizer, grammar, _schema_fields(body))
    thought = thought_of(marks, body, TokenTexts(target.tokenizer), prompt)
    if thought is not None:
        grammar = thought.before(grammar, target.tokenizer)
        if thought.marks.is_special:
            body = body.model_copy(update={"skip_special_tokens": False})  # they would be missing in the text
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    length = body.length or _rest(service, body, prompt, body.prompt_field)
    return _generate_calls(service, body, prompt, body.prompt_field, "chat", length, logprobs, grammar)


def shown_tools(body: ToolFields) -> Sequence[dict[str, Any]] | None:
    """The tools in the prompt; None if the answer may call no tools. Raises InvalidArgument."""
    if chosen_tools(body) is None:
        return None
    return as_tools(body.functions) if body.functions else body.tools


def chosen_tools(body: ToolFields) -> ToolChoice | None:
    """The functions that the answer may call; None if there are none. Raises InvalidArgument."""
    if body.functions:
        return read_function_call(body.functions, body.function_call)
    return read_tool_choice(body.tools, body.tool_choice, body.parallel_tool_calls is not False, body.function_paths)


def _schema_fields(body: ChatBody) -> dict[str, str]:
    """The name of each function -> the path of its schema in the request."""
    tools = as_tools(body.functions) if body.functions else body.tools or ()
    paths = zip(tools, body.function_paths, strict=True)
    return {tool["function"]["name"]: f"{path}.parameters" for tool, path in paths}


def read_completion(service: DecodeService, body: CompletionBody) -> list[GenerateCall]:
    """One ``GenerateCall`` for each text that ``body`` requests, prompt by prompt. Raises InvalidArgument."""
    if body.suffix:
        raise InvalidField("suffix", ": texts are not inserted before a suffix; omit it")
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise InvalidField("best_of", f" is {body.best_of}; it must be equal to n, as texts are not ranked")
    prompts = _prompts(body)
    if len(prompts) * (body.n or 1) > MAX_TEXTS:
        raise InvalidField("prompt", f": {len(prompts)} prompts with n {body.n or 1}; the limit is {MAX_TEXTS} texts")
    length = COMPLETION_TOKENS if body.length is None else max(1, body.length)  # 0: the token is left out of the answer
    grammar = read_guided(body) or read_grammar(body.response_format)
    generate_calls: list[GenerateCall] = []
    for prompt in prompts:
        kind = "text" if isinstance(prompt, str) else "token_ids"
        ids = _truncated(service, body, _encode(service.engine.target, prompt, _prompt_limit(service, body)), length)
        limit = _rest(service, body, ids, "prompt") if body.length == NO_LIMIT else length
        generate_calls += _generate_calls(service, body, ids, "prompt", kind, limit, body.logprobs, grammar)
    return generate_calls


def encode_messages(
    target: Target,
    messages: Sequence[Message],
    tools: Sequence[dict[str, Any]] | None,
    template: TemplateFields,
    limit: int | None,
) -> list[int]:
    """The tokens of a conversation, with the template's prompt for the answer. Raises InvalidArgument.

    ``limit``: as in ``encode_text``.
    """
    if template.continue_final_message and template.add_generation_prompt:
        raise InvalidField("add_generation_prompt", ": it excludes continue_final_message; omit one")
    source = str(getattr(target.tokenizer, "chat_template", ""))
    effort: dict[str, Any] = {}
    if template.reasoning_effort is not None:
        effort["reasoning_effort"] = template.reasoning_effort
        if "enable_thinking" in source and "reasoning_effort" not in source:  # as Qwen's and Gemma's templates
            effort["enable_thinking"] = template.reasoning_effort != "none"
    for index, message in enumerate(messages):
        check_message(index, message, source, template.continue_final_message is True)
    contents = [message_text(message) for message in messages]
    limits.check_chat(template.prompt_field, [message.role for message in messages], contents)
    knows_developer = "developer" in source
    conversation = [
        {
            **with_reasoning(message.model_extra or {}),
            "role": _role(message.role, knows_developer),
            "content": content,
        }
        for message, content in zip(messages, contents, strict=True)
    ]
    conversation = in_call_order(template_messages(call_messages(conversation)))
    if lacks_tools(source, tools or ()):
        conversation, tools = generic_messages(conversation, tools or ()), None
    encode = partial(
        encode_chat,
        target,
        tools=tools,
        limit=limit,
        continues=template.continue_final_message is True,
        generation_prompt=template.add_generation_prompt is not False,
        special_tokens=template.add_special_tokens is True,
        variables=effort | (template.chat_template_kwargs or {}),
    )
    rejected: list[RejectedChat] = []
    try:
        for simpler in simpler_forms(conversation):
            try:
                return encode(simpler)
            except RejectedChat as error:
                rejected.append(error)
        raise rejected[0]
    except PromptTooLong as error:
        raise InvalidField(template.prompt_field, f": {error}", "context_length_exceeded") from None


def _role(role: str, knows_developer: bool) -> str:
    """The role to use. ``developer`` is OpenAI's newer name of ``system``; a template that does not know it gets
    ``system``."""
    return "system" if role == "developer" and not knows_developer else role


def _generate_calls(
    service: DecodeService,
    body: GenerationBody,
    prompt: Sequence[int],
    field: str,
    kind: str,
    length: int,
    logprobs: int | None,
    grammar: Grammar | None,
) -> list[GenerateCall]:
    limits.check_new_tokens(body.length_field, length)
    room = _rest(service, body, prompt, field)
    context = service.engine.target.context_length
    if (length if context is None else min(length, context - len(prompt))) > room:
        raise InvalidField(
            body.length_field,
            f" is {length}, but {_limit(room + len(prompt))}; with a prompt of {len(prompt)} there is room for {room}; lower it or "
            "shorten the prompt",
            "context_length_exceeded",
        )
    own = body.suffolk or DraftFields()
    options = DraftOptions(
        prediction=None if body.prediction is None else text_of(body.prediction.content),
        datastores=None if own.datastores is None else tuple(own.datastores),
        remember=own.remember is not False and not drops_answer(body),
        group=own.group,
        trace=own.trace is True,
    )
    settings = sampling_settings(body, service.engine.target, length, logprobs) | {"grammar": grammar}
    seed = secrets.randbits(62) if body.seed is None else body.seed
    return [
        GenerateCall(
            prompt=prompt,
            settings=SamplingSettings(**settings, seed=(seed + index) & MAX_SEED),
            drafter=own.drafter or "",
            max_nodes=own.max_nodes,
            options=options,
            kind=kind,
        )
        for index in range(body.n or 1)
    ]


def _prompt_limit(service: DecodeService, body: GenerationBody) -> int | None:
    """The ``limit`` of ``encode_text`` for a prompt; None if a long prompt is truncated."""
    return max_length(service, body.suffolk or DraftFields()) if body.truncate_prompt_tokens is None else None


def _truncated(service: DecodeService, body: GenerationBody, prompt: Sequence[int], length: int) -> Sequence[int]:
    """The last tokens of ``prompt``, as many as the request says. With -1, room for ``length`` tokens is left."""
    count = body.truncate_prompt_tokens
    if count is None:
        return prompt
    if count == 0:
        raise InvalidField("truncate_prompt_tokens", " is 0; it must be 1 or more, or -1 for all that fit")
    limit = max_length(service, body.suffolk or DraftFields())
    if count < 0:
        count = limit - (length if length < limit else 1)
    elif min(count, len(prompt)) >= limit:
        text = f" is {count}, but {_limit(limit)} with the answer; lower it to {limit - 1} or less, or write -1 for all that fit"
        raise InvalidField("truncate_prompt_tokens", text, "context_length_exceeded")
    return prompt[-count:]


def _rest(service: DecodeService, body: GenerationBody, prompt: Sequence[int], field: str) -> int:
    """The most tokens that may be generated. Raises InvalidField if the prompt leaves no room for one."""
    limit = max_length(service, body.suffolk or DraftFields())
    if len(prompt) >= limit:
        text = f": {_limit(limit)}, and the prompt has {len(prompt)}; the answer needs room too: shorten it to {limit - 1} or less"
        raise InvalidField(field, text, "context_length_exceeded")
    return limit - len(prompt)


def _limit(limit: int) -> str:
    """The words by which clients recognize that a prompt is too long."""
    return f"this model's maximum context length is {limit} tokens"


def max_length(service: DecodeService, own: DraftFields) -> int:
    """The most tokens of prompt and answer together. Raises InvalidArgument if ``max_nodes`` is out of range."""
    if own.max_nodes is not None:
        check_range("max_nodes", own.max_nodes, 1, service.max_nodes)
    nodes = 0 if (own.drafter or service.default_drafter) == "none" else (own.max_nodes or service.max_nodes)
    limit, context = service.engine.capacity - nodes, service.engine.target.context_length
    return limit if context is None else min(limit, context)


def _prompts(body: CompletionBody) -> list[str] | list[list[int]]:
    """The prompts of ``body``. A flat list of token ids is one prompt."""
    prompt = body.prompt
    if isinstance(prompt, str):
        return [prompt]
    several = bool(prompt) and not isinstance(prompt[0], int)
    return cast("list[str] | list[list[int]]", prompt if several else [prompt])


def _encode(target: Target, prompt: str | Sequence[int], limit: int | None) -> Sequence[int]:
    if isinstance(prompt, str):
        check_size("prompt", len(prompt), limits.MAX_TEXT, "characters", "shorten it")
        return encode_text(target, prompt, limit=limit)
    check_size("prompt", len(prompt), limits.MAX_PROMPT, "tokens", "shorten it")
    return prompt
