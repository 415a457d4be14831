"""Tests the messages of a conversation that clients send back, or send in the form of another API."""

from __future__ import annotations

from typing import Any

import pytest

from suffolk.build_index.message_forms import simpler_forms
from suffolk.serving.net.http_body import InvalidField
from suffolk.serving.worker.openai.bodies import Message
from suffolk.serving.worker.openai.history import check_message, in_call_order, template_messages
from suffolk.serving.worker.server import WorkerServer
from tests.support.http_requests import ask
from tests.support.worker_server import talking_target, working

USER = {"role": "user", "content": "a"}


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ({"role": "human", "content": "a"}, "messages[2].role is 'human'; did you mean 'user'?"),
        ({"role": "ai", "content": "a"}, "messages[2].role is 'ai'; did you mean 'assistant'?"),
        ({"role": "System", "content": "a"}, "messages[2].role is 'System'; did you mean 'system'?"),
        ({"role": "asistant", "content": "a"}, "messages[2].role is 'asistant'; did you mean 'assistant'?"),
        ({"role": "assistant", "contnet": "a"}, "messages[2].contnet: unknown field; did you mean content?"),
        (USER | {"images": ["aGk="]}, "messages[2].images: the model takes text alone; leave this field out"),
        ({"role": "assistant", "content": None, "audio": {"id": "a"}}, "messages[2].audio: the model takes text alone"),
        (USER | {"name": 5}, "messages[2].name is 5; it must be a string"),
        (USER | {"reasoning": ["a"]}, 'messages[2].reasoning is ["a"]; it must be a string'),
        ({"role": "assistant", "refusal": False}, "messages[2].refusal is false; it must be a string"),
        ({"role": "tool", "content": "a", "tool_call_id": 5}, "messages[2].tool_call_id is 5; it must be a string"),
    ],
)
def test_what_the_model_would_not_know_is_refused(message: dict[str, Any], error: str) -> None:
    with pytest.raises(InvalidField) as caught:
        check_message(2, Message(**message), "{{ message['role'] }}", False)
    assert str(caught.value).startswith(error)


@pytest.mark.parametrize(
    "message", [{"role": "model", "content": "a"}, {"role": "critic", "content": "a"}, USER | {"images": ["aGk="]}]
)
def test_a_template_may_know_more(message: dict[str, Any]) -> None:
    check_message(0, Message(**message), "{% if message.role == 'model' %}{{ message.images }}{% endif %}", False)


@pytest.mark.parametrize("name", ["id", "type"])
def test_a_call_with_a_value_of_a_wrong_type_is_named(name: str) -> None:
    calls = [{"function": {"name": "f"}}, {"function": {"name": "f"}, name: 5}]
    with pytest.raises(InvalidField, match=rf"^messages\[0\]\.tool_calls\[1\]\.{name} is 5; it must be a string$"):
        template_messages([{"role": "assistant", "tool_calls": calls}])


def test_empty_media_ask_for_nothing() -> None:
    check_message(0, Message(role="user", content="a", images=[], audio=None), "", False)


def test_an_earlier_refusal_is_read(server: WorkerServer) -> None:
    """As OpenAI's clients send back the message of an answer that refused."""
    conversation = [USER, {"role": "assistant", "content": None, "refusal": "No."}, USER]
    tokens = ask(server, "POST", "/tokenize", {"messages": conversation})[2]["tokens"]
    prompt = ask(server, "POST", "/detokenize", {"tokens": tokens})[2]["prompt"]
    assert prompt == "<user>a<assistant>No.<user>a<assistant>"


def test_results_come_in_the_order_of_their_calls() -> None:
    """Calls that run side by side end in any order."""
    calls = {"role": "assistant", "tool_calls": [{"id": "a"}, {"id": "b"}]}
    first, second, other = ({"role": "tool", "tool_call_id": each} for each in "abc")
    assert in_call_order([calls, second, first, USER]) == [calls, first, second, USER]
    assert in_call_order([calls, second, first, calls, first, second]) == [calls, first, second] * 2
    for unknown in ([calls, second, first, other], [USER, second, first]):
        assert in_call_order(unknown) == unknown


FIRST_ONLY = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('System message must be at the beginning.') }}{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}"
)
"""As Qwen's template since 3.5."""


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_messages_of_the_system_are_joined_if_the_template_takes_one(path: str) -> None:
    """Regression: agents and LangChain send some in the middle; the conversation was refused."""
    target = talking_target()
    target.tokenizer.chat_template = FIRST_ONLY
    first, later = {"role": "system", "content": "b"}, {"role": "developer", "content": "c"}
    field, most = ("messages", "max_tokens") if "chat" in path else ("input", "max_output_tokens")
    with working(target) as server:
        for conversation, joined in (
            ([first, later, USER], "<system>b\n\nc<user>a"),
            ([first, USER, later], "<system>b\n\nc<user>a"),
            ([USER, later], "<system>c<user>a"),
        ):
            status, _, reply = ask(server, "POST", path, {field: conversation, most: 1})
            assert status == 200, reply
            tokens = ask(server, "POST", "/tokenize", {"prompt": joined, "add_special_tokens": False})[2]["count"]
            counts = reply["usage"]
            assert counts.get("prompt_tokens", counts.get("input_tokens")) == tokens


TURNS = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}"
)
"""As Gemma 2's template, which knows no role of the system."""
TURNS_AFTER_SYSTEM = (
    "{% if messages[0].role == 'system' %}<system>{{ messages[0].content }}{% set messages = messages[1:] %}{% endif %}"
    + TURNS
)
"""As Mistral's."""
SYSTEM, OTHER = {"role": "system", "content": "s"}, {"role": "user", "content": "b"}
ANSWER = {"role": "assistant", "content": "c"}


@pytest.mark.parametrize(
    ("template", "conversation", "prompt"),
    [
        (TURNS, [USER, OTHER], "<user>a\n\nb"),
        (TURNS, [SYSTEM, USER, OTHER, ANSWER, ANSWER, USER], "<user>s\n\na\n\nb<assistant>c\n\nc<user>a"),
        (TURNS_AFTER_SYSTEM, [USER, OTHER, SYSTEM], "<system>s<user>a\n\nb"),
        (TURNS_AFTER_SYSTEM, [SYSTEM, USER, ANSWER, OTHER], "<system>s<user>a<assistant>c<user>b"),
    ],
)
def test_turns_are_joined_if_the_template_takes_one_at_a_time(
    template: str, conversation: list[dict[str, Any]], prompt: str
) -> None:
    """Regression: "Conversation roles must alternate" was the answer to two messages of a user."""
    target = talking_target()
    target.tokenizer.chat_template = template
    with working(target) as server:
        status, _, reply = ask(server, "POST", "/tokenize", {"messages": conversation})
        assert status == 200, reply
        assert ask(server, "POST", "/detokenize", {"tokens": reply["tokens"]})[2]["prompt"] == prompt
        status, _, reply = ask(server, "POST", "/tokenize", {"messages": [ANSWER, USER]})
        assert status == 400
        assert "rejects the conversation: Conversation roles must alternate" in reply["error"]["message"]


def call(name: str, key: str | None) -> dict[str, Any]:
    return {"id": key, "type": "function", "function": {"name": name, "arguments": "{}"}}


RESULT = {"role": "tool", "content": "7"}
NINE = (
    "{% for m in messages %}{% for each in ([m.tool_call_id] if m.role == 'tool' else m.tool_calls | map(attribute='id')) %}"
    "{% if each is not string or each | length != 9 %}{{ raise_exception('ids have 9 characters') }}{% endif %}({{ each }})"
    "{% endfor %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ tools or '' }}"
)
"""As templates of Mistral."""


@pytest.mark.parametrize(
    ("keys", "results", "shown"),
    [
        (["call_of_another", "b"], ["b", "call_of_another"], ["call00100", "call00101"]),
        ([None, None], [None, None], ["call00100", "call00101"]),
        (["123456789", "abcdefghi"], ["123456789", "abcdefghi"], ["123456789", "abcdefghi"]),
        (["a", "b"], ["b", "unknown"], ["call00101", "call00100"]),
    ],
)
def test_ids_are_shortened_if_the_template_refuses_them(
    keys: list[str | None], results: list[str | None], shown: list[str]
) -> None:
    """Regression: an agent that changed its model could not go on."""
    calls = {
        "role": "assistant",
        "content": None,
        "tool_calls": [call(name, key) for name, key in zip("fg", keys, strict=True)],
    }
    conversation = [USER, calls, *(RESULT | {"tool_call_id": key} for key in results)]
    own = keys if all(each and len(each) == 9 for each in keys) else ["call00100", "call00101"]
    expected = "<user>a" + "".join(f"({each})" for each in own) + "<assistant>"
    expected += "".join(f"({each})<tool>7" for each in shown)
    assert rendered(NINE, conversation) == expected


def test_an_empty_list_of_calls_is_left_out() -> None:
    """Regression: Llama's template, which counts the calls of a list, refused it."""
    template = (
        "{% for m in messages %}{% if 'tool_calls' in m and m.tool_calls | length != 1 %}{{ raise_exception('one call') }}"
        "{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ tools or '' }}"
    )
    assert rendered(template, [USER, {"role": "assistant", "content": "b", "tool_calls": []}]) == "<user>a<assistant>b"


def rendered(template: str, conversation: list[dict[str, Any]]) -> str:
    target = talking_target()
    target.tokenizer.chat_template = template
    with working(target) as server:
        status, _, reply = ask(server, "POST", "/tokenize", {"messages": conversation, "add_generation_prompt": False})
        assert status == 200, reply
        return str(ask(server, "POST", "/detokenize", {"tokens": reply["tokens"]})[2]["prompt"])


def test_half_of_a_surrogate_pair_in_arguments_is_replaced() -> None:
    """Regression: it was an internal error. Models cut emoji in two, and agents send the call back in every request."""
    template = (
        "{% for m in messages %}{{ m.tool_calls[0].function.arguments.a if m.tool_calls else m.content }}{% endfor %}"
    )
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": r'{"a": "\ud83d"}'}}
    assert rendered(template, [USER, {"role": "assistant", "content": None, "tool_calls": [call]}]) == "a\ufffd"


def test_calls_of_tools_and_their_results_stay_apart() -> None:
    calls = {"role": "assistant", "content": "", "tool_calls": [{"id": "a"}]}
    results = [{"role": "tool", "content": text, "tool_call_id": "a"} for text in "xy"]
    conversation = [USER, ANSWER, calls, *results, ANSWER]
    first, with_short_ids = simpler_forms(conversation)
    assert first == conversation
    assert [message["content"] for message in with_short_ids] == [message["content"] for message in conversation]


@pytest.mark.parametrize(("effort", "shown"), [("none", "False"), ("high", "True")])
def test_an_effort_switches_thinking(effort: str, shown: str) -> None:
    """Regression: the effort had no effect on templates of Qwen and Gemma. OpenAI's clients have no other field."""
    target = talking_target()
    target.tokenizer.chat_template = "<{{ enable_thinking }}>"
    with working(target) as server:
        tokens = ask(server, "POST", "/tokenize", {"messages": [USER], "reasoning_effort": effort})[2]["tokens"]
        assert ask(server, "POST", "/detokenize", {"tokens": tokens})[2]["prompt"] == f"<{shown}>"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "reasoning", "reasoning": "c"},
        {"type": "reasoning", "text": "c"},
        {"type": "thinking", "thinking": [{"type": "text", "text": "c"}]},
        {"type": "redacted_thinking", "data": "c"},
    ],
    ids=["LangChain", "Vercel's SDK", "Mistral", "Anthropic"],
)
def test_reasoning_of_earlier_answers_is_left_out(server: WorkerServer, part: dict[str, Any]) -> None:
    """As agents send it back that have kept an answer of another model."""
    conversation = [USER, {"role": "assistant", "content": [part, {"type": "text", "text": "b"}]}, USER]
    status, _, reply = ask(server, "POST", "/tokenize", {"messages": conversation})
    assert status == 200, reply
    assert ask(server, "POST", "/detokenize", {"tokens": reply["tokens"]})[2]["prompt"] == (
        "<user>a<assistant>b<user>a<assistant>"
    )
