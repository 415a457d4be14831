"""Messages of a request, as chat templates read them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from suffolk.serving.net.http_body import InvalidField
from suffolk.serving.worker.openai.content import text_of
from suffolk.serving.worker.openai.schema import Message

_ROLES = ("system", "user", "assistant", "tool", "function", "developer")
_OTHER_ROLES = {"human": "user", "ai": "assistant", "bot": "assistant", "gpt": "assistant", "model": "assistant"}
"""Role of other APIs and of data sets -> OpenAI's."""
_MEDIA = ("attachments", "audio", "experimental_attachments", "images", "videos")
"""Fields in which Ollama's, OpenAI's and Vercel's messages hold more than text."""


def check_message(index: int, message: Message, source: str, continues: bool) -> None:
    """Raise InvalidField for what the prompt would lack, or show under a role that the model does not know.

    Args:
        source: the chat template. It may know more fields and roles than OpenAI's API has.
        continues: whether the answer continues the last message.
    """
    role, path, extra = message.role, f"messages[{index}]", message.model_extra or {}
    meant = _OTHER_ROLES.get(role.lower(), role.lower())
    if meant != role and meant in _ROLES and f"'{role}'" not in source and f'"{role}"' not in source:
        raise InvalidField(f"{path}.role", f" is {role!r}; did you mean {meant!r}?")
    if role == "user" and message.content is None:
        raise InvalidField(f"{path}.content", ": field required in a message of role 'user'")
    if media := next((name for name in _MEDIA if extra.get(name) and name not in source), ""):
        raise InvalidField(f"{path}.{media}", ": the model takes text alone; leave this field out")
    if extra.get("prefix") and "prefix" not in source and not continues:
        advice = "use continue_final_message: true with add_generation_prompt: false"
        raise InvalidField(f"{path}.prefix", f": the chat template does not support it; {advice}")


def message_text(message: Message) -> str:
    """The content of a message; of an answer that refused, the refusal."""
    refusal = (message.model_extra or {}).get("refusal")
    return text_of(message.content) or (refusal if isinstance(refusal, str) else "")


def in_call_order(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """``messages`` with the results of tools in the order of their calls. Most templates show neither's id."""
    found: list[dict[str, Any]] = []
    order: dict[str, int] = {}
    for is_result, group in groupby(messages, lambda message: message["role"] == "tool"):
        run = list(group)
        if is_result and all(str(message.get("tool_call_id")) in order for message in run):
            run.sort(key=lambda message: order[str(message.get("tool_call_id"))])
        found += run
        order = {str(call.get("id")): at for at, call in enumerate(run[-1].get("tool_calls") or ())}
    return found
