"""Messages of a request, as chat templates read them: roles, earlier calls of tools, and their results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

from suffolk.serving.net.http_body import InvalidField, shown
from suffolk.serving.worker.openai.bodies import Message
from suffolk.serving.worker.openai.content import text_of
from suffolk.serving.worker.openai.known_fields import check_names, meant

_ROLES = ("system", "user", "assistant", "tool", "function", "developer")
_OTHER_ROLES = {"human": "user", "ai": "assistant", "bot": "assistant", "gpt": "assistant", "model": "assistant"}
"""Role of other APIs and of data sets -> OpenAI's role."""
_MEDIA = ("attachments", "audio", "experimental_attachments", "images", "videos")
"""Fields in which Ollama's, OpenAI's and Vercel's messages hold more than text."""

_PREFIX = ("prefix", "partial")
"""Fields in which Mistral, DeepSeek, Moonshot and DashScope ask to continue a message."""
_FIELDS = ("tool_calls", "tool_call_id", "function_call")
_TEXTS = ("name", "reasoning", "reasoning_content", "refusal", "tool_call_id")
"""Fields of messages that are texts."""


def check_message(index: int, message: Message, source: str, continues: bool) -> None:
    """Raise InvalidField for parts of messages that the prompt would not have, or would show under a role that the model does not
    know.

    Args:
        source: the chat template. It may know more fields and roles than OpenAI's API has.
        continues: whether the answer continues the last message.
    """
    role, path, extra = message.role, f"messages[{index}]", message.model_extra or {}
    near = _OTHER_ROLES.get(role.lower()) or meant(role, _ROLES)
    if near not in ("", role) and f"'{role}'" not in source and f'"{role}"' not in source:
        raise InvalidField(f"{path}.role", f" is {role!r}; did you mean {near!r}?")
    check_names(f"{path}.", {"content": message.content, **extra}, ("content",))
    _check_texts(path, extra, _TEXTS)
    if role == "user" and message.content is None:
        raise InvalidField(f"{path}.content", ": field required in a message of role 'user'")
    if media := next((name for name in _MEDIA if extra.get(name) and name not in source), ""):
        raise InvalidField(f"{path}.{media}", ": the model takes text alone; leave this field out")
    if not continues and (name := next((name for name in _PREFIX if extra.get(name) and name not in source), "")):
        advice = "use continue_final_message: true with add_generation_prompt: false"
        raise InvalidField(f"{path}.{name}", f": the chat template does not support it; {advice}")
    given = {name: value for name, value in extra.items() if name in _FIELDS or name not in source}
    check_names(f"{path}.", given, _FIELDS)


def _check_texts(path: str, given: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raise InvalidField if one of the fields ``names`` of the object at ``path`` has a value that is not a text or null."""
    if wrong := next((name for name in names if not isinstance(given.get(name), str | None)), ""):
        raise InvalidField(f"{path}.{wrong}", f" is {shown(given[wrong])}; it must be a string")


def message_text(message: Message) -> str:
    """The content of a message; the refusal, if the message is an answer that refused."""
    return text_of(message.content) or (message.model_extra or {}).get("refusal") or ""


def in_call_order(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """``messages`` with the results of tools in the order of their calls. Most templates do not show the ids of calls and
    results."""
    found: list[dict[str, Any]] = []
    order: dict[str, int] = {}
    for is_result, group in groupby(messages, lambda message: message["role"] == "tool"):
        run = list(group)
        if is_result and all(str(message.get("tool_call_id")) in order for message in run):
            run.sort(key=lambda message: order[str(message.get("tool_call_id"))])
        found += run
        order = {str(call.get("id")): at for at, call in enumerate(run[-1].get("tool_calls") or ())}
    return found


def call_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """``messages`` with calls of functions and their results in the form of tools. Other messages are unchanged.

    Raises InvalidField if a call has no name.
    """
    found = [dict(message) for message in messages]
    name = ""
    for at, message in enumerate(found):
        call = message.get("function_call")
        if call is not None:
            if not isinstance(call, Mapping) or not isinstance(call.get("name"), str):
                raise InvalidField(f"messages[{at}].function_call", " has no name; give name and arguments")
            name = f"call{at:05}"  # 9 characters, as Mistral's templates want
            del message["function_call"]
            message["tool_calls"] = [{"id": name, "type": "function", "function": dict(call)}]
        elif message["role"] == "function":
            message |= {"role": "tool", "tool_call_id": name}
    return found


def template_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """``messages`` with the arguments of their calls as objects, which chat templates expect. Other messages are unchanged.

    Arguments that are not a JSON object stay texts. Such arguments come from an answer that was cut off, or from a model's
    mistake. Agents send them back with an error as result.

    Raises InvalidField if calls are not a list, or a call has no name.
    """
    found = [dict(message) for message in messages]
    for at, message in enumerate(found):
        calls = message.get("tool_calls")
        if calls is None or calls == []:
            message.pop("tool_calls", None)  # Llama's template counts the calls if there is a list
            continue
        if not isinstance(calls, list):
            raise InvalidField(f"messages[{at}].tool_calls", f" is {shown(calls)}; it must be an array")
        message["tool_calls"] = [_template_call(at, number, call) for number, call in enumerate(calls)]
    return found


def _template_call(at: int, number: int, call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise InvalidField(f"messages[{at}].tool_calls", " has an entry without function.name; give it")
    _check_texts(f"messages[{at}].tool_calls[{number}]", call, ("id", "type"))
    given = arguments = function.get("arguments", {})
    with suppress(ValueError, RecursionError):
        arguments = json.loads(given.strip() or "{}") if isinstance(given, str) else given
    if arguments in (None, []):  # of functions without parameters; PHP writes {} as []
        arguments = {}
    elif not isinstance(arguments, dict):
        arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    return dict(call) | {"function": dict(function) | {"arguments": arguments}}
