"""Tests reasoning through OpenAI's client."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import openai
import pytest
from tokenizers import AddedToken

from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.worker.openai.responses_body import ResponsesBody, chat_of
from suffolk.serving.worker.server import WorkerServer
from tests.support.http_requests import ask
from tests.support.openai_server import client_of
from tests.support.tiny_models import tiny_model, tiny_tokenizer
from tests.support.worker_server import working

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}[{{ m.reasoning_content }}]{% endif %}{{ m.content }}"
    "{% for call in m.tool_calls or [] %}{{ call.function.name }}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{{ ['<think></think>', '<think>\n'][enable_thinking] if enable_thinking is "
    "defined }}{% endif %}{# tools #}"
)
"""As Qwen's: without a variable the model opens its thought itself."""
USER = {"role": "user", "content": "a"}
ASKED: dict[str, Any] = {"model": "tiny", "messages": [USER], "max_completion_tokens": 300, "seed": 3}
WEATHER: Any = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}


@dataclass(frozen=True)
class Reasoner:
    """A worker with a tiny model whose chat template has marks, and a bias by which the random model writes these."""

    server: WorkerServer
    kind: str
    marks: tuple[str, str]
    bias: dict[str, float]

    def asked(self, **more: Any) -> dict[str, Any]:
        fields = {"max_completion_tokens": 600, "logit_bias": self.bias} | more
        return ASKED | fields | {"extra_body": more.get("extra_body", {})}


@pytest.fixture(scope="module", params=["text", "tokens", "special tokens"])
def reasoner(request: pytest.FixtureRequest) -> Iterator[Reasoner]:
    """The marks are two characters each, tokens, or special tokens."""
    tokenizer = tiny_tokenizer()
    if is_text := request.param == "text":
        marks, ids = ("((", "))"), tokenizer("()")["input_ids"]
    else:
        marks, is_special = ("<think>", "</think>"), "special" in request.param
        tokenizer.add_tokens([AddedToken(mark, special=is_special) for mark in marks], special_tokens=is_special)
        ids = tokenizer.convert_tokens_to_ids(marks)
    tokenizer.chat_template = TEMPLATE.replace("<think>", marks[0]).replace("</think>", marks[1])
    model = tiny_model(vocab_size=len(tokenizer), max_position_embeddings=4096)
    model.generation_config.eos_token_id = 256
    target = Target.wrap(model, tokenizer, "tiny")
    drafters = {"prompt-lookup": PromptLookupDrafter(target.vocab_size)}
    with working(target, drafters, reasoning=" ".join(marks) if is_text else "auto") as server:
        biases = (5.0, 5.5) if is_text else (3.0, 4.0)  # two characters in a row are rare: thoughts would be long
        yield Reasoner(server, request.param, marks, dict(zip(map(str, ids), biases, strict=True)))


@pytest.fixture
def client(reasoner: Reasoner) -> Iterator[openai.OpenAI]:
    with client_of(reasoner.server) as client:
        yield client


def reasoning_of(message: Any) -> str:
    return getattr(message, "reasoning_content", None) or ""


def details(answer: Any) -> Any:
    return answer.usage.completion_tokens_details


def streamed(client: openai.OpenAI, fields: dict[str, Any]) -> tuple[str, str, Any]:
    """The reasoning and content of a stream, and the details of its usage."""
    chunks = list(client.chat.completions.create(**fields, stream=True, stream_options={"include_usage": True}))
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    return "".join(map(reasoning_of, deltas)), "".join(delta.content or "" for delta in deltas), details(chunks[-1])


@pytest.mark.parametrize("variables", [{}, {"enable_thinking": True}])
def test_a_grammar_begins_behind_the_thought(
    reasoner: Reasoner, client: openai.OpenAI, variables: dict[str, Any]
) -> None:
    counts = set()
    for seed in range(4):
        extra = {"chat_template_kwargs": variables, "guided_regex": "(yes|no)!"}
        fields = reasoner.asked(extra_body=extra, seed=seed)
        whole = client.chat.completions.create(**fields)
        [choice] = whole.choices
        reasoning, content = reasoning_of(choice.message), choice.message.content
        assert (choice.finish_reason, content in ("yes!", "no!")) == ("stop", True)
        assert details(whole).reasoning_tokens or not variables
        for drafter in ("none", "prompt-lookup"):
            own = fields | {"extra_body": extra | {"suffolk": {"drafter": drafter}}}
            assert streamed(client, own) == (reasoning, content, details(whole))
        counts.add(details(whole).reasoning_tokens)
    if not variables and reasoner.kind != "text":
        assert 0 in counts  # the model may answer without a thought
    several = client.chat.completions.create(**fields, n=2)
    assert several.choices[0].message == choice.message
    assert details(several).reasoning_tokens >= details(whole).reasoning_tokens


THINKING = {"chat_template_kwargs": {"enable_thinking": True}}
REGEX = THINKING | {"guided_regex": "(yes|no)!"}


def test_reasoning_tokens_are_those_up_to_the_end_of_the_thought(reasoner: Reasoner, client: openai.OpenAI) -> None:
    """With log-probabilities, which have an entry for each token."""
    answer = client.chat.completions.create(**reasoner.asked(extra_body=REGEX, logprobs=True))
    [choice] = answer.choices
    entries = choice.logprobs.content or []  # type: ignore[union-attr]
    tokens = [each.token for each in entries]
    assert len(tokens) == answer.usage.completion_tokens  # type: ignore[union-attr]
    thought = tokens[: details(answer).reasoning_tokens]
    assert "".join(thought).endswith(reasoner.marks[1])
    assert reasoner.marks[1] not in "".join(thought[:-1])
    assert "".join(tokens[len(thought) :]).strip() == choice.message.content


def test_an_answer_may_end_inside_the_thought(reasoner: Reasoner, client: openai.OpenAI) -> None:
    fields = reasoner.asked(extra_body=REGEX)
    whole = client.chat.completions.create(**fields).choices[0].message
    cut = client.chat.completions.create(**fields | {"max_completion_tokens": 8})
    [choice] = cut.choices
    assert (choice.finish_reason, choice.message.content, details(cut).reasoning_tokens) == ("length", "", 8)
    assert reasoning_of(whole).startswith(reasoning_of(choice.message).rstrip("\ufffd")) != ""
    stop = reasoning_of(whole)[3]
    [stopped] = client.chat.completions.create(**fields, stop=stop).choices
    assert (stopped.finish_reason, stopped.message.content) == ("stop", "")
    assert reasoning_of(stopped.message) == reasoning_of(whole).partition(stop)[0].rstrip()
    assert streamed(client, fields | {"stop": stop})[:2] == (reasoning_of(stopped.message), "")


@pytest.mark.parametrize("choice", ["required", "auto"])
def test_calls_come_behind_the_thought(reasoner: Reasoner, client: openai.OpenAI, choice: Any) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "null"}}}
    fields = reasoner.asked(extra_body=THINKING, tools=[WEATHER], tool_choice=choice)
    fields |= {"parallel_tool_calls": False} | ({"response_format": schema} if choice == "auto" else {})
    message = client.chat.completions.create(**fields).choices[0].message
    assert reasoning_of(message)
    assert message.tool_calls or (choice == "auto" and message.content == "null")
    reasoning, content, _ = streamed(client, fields)
    assert (reasoning, content) == (reasoning_of(message), message.content or "")


def test_a_closed_thought_and_other_wishes_give_raw_content(reasoner: Reasoner, client: openai.OpenAI) -> None:
    def message(**extra: Any) -> Any:
        fields = reasoner.asked(extra_body={"guided_regex": "(yes|no)!"} | extra)
        return client.chat.completions.create(**fields).choices[0].message

    off = message(chat_template_kwargs={"enable_thinking": False})
    assert (off.content in ("yes!", "no!"), reasoning_of(off)) == (True, "")
    assert message(reasoning_effort="none").content == off.content
    split = message(**THINKING)
    for wish in ({"separate_reasoning": False}, {"reasoning_format": "none"}):
        raw = message(**THINKING, **wish)
        assert reasoning_of(raw) == ""
        begin, _, end = raw.content.rpartition(reasoner.marks[1])
        if "special" not in reasoner.kind:
            assert (begin.strip(), end.strip()) == (reasoning_of(split), split.content)
    without = message(**THINKING, include_reasoning=False)
    assert (without.content, reasoning_of(without)) == (split.content, "")


def test_a_message_may_be_continued_inside_its_thought(reasoner: Reasoner, client: openai.OpenAI) -> None:
    begin, end = reasoner.marks
    for text, thinks in ((f"{begin}Well", True), (f"{begin}Well{end}I", False)):
        messages = [USER, {"role": "assistant", "content": text}]
        extra = {"guided_regex": "(yes|no)!", "continue_final_message": True, "add_generation_prompt": False}
        [choice] = client.chat.completions.create(**reasoner.asked(extra_body=extra) | {"messages": messages}).choices
        assert (choice.message.content in ("yes!", "no!"), bool(reasoning_of(choice.message))) == (True, thinks)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_of_a_history_reaches_the_template(reasoner: Reasoner, name: str) -> None:
    answer = {"role": "assistant", "content": "b", name: "Well"}
    fields = {"messages": [USER, answer, USER], "add_generation_prompt": False}
    tokens = ask(reasoner.server, "POST", "/tokenize", fields)[2]["tokens"]
    prompt = ask(reasoner.server, "POST", "/detokenize", {"tokens": tokens})[2]["prompt"]
    assert prompt == "<user>a<assistant>[Well]b<user>a"
    status, _, reply = ask(reasoner.server, "POST", "/tokenize", {"messages": [answer | {"reasoning_content": 5}]})
    assert (status, reply["error"]["param"]) == (400, "messages[0].reasoning_content")


def test_a_response_has_an_item_of_reasoning(reasoner: Reasoner, client: openai.OpenAI) -> None:
    fields: Any = {"model": "tiny", "input": "a", "max_output_tokens": 600, "reasoning": {"effort": "high"}}
    fields |= {"extra_body": {"guided_regex": "(yes|no)!", "logit_bias": reasoner.bias, "seed": 3}}
    whole = client.responses.create(**fields, include=["message.output_text.logprobs"])
    thought, message = whole.output
    assert (thought.type, message.type) == ("reasoning", "message")
    assert thought.content[0].text  # type: ignore[union-attr, index]
    assert whole.output_text in ("yes!", "no!")
    [part] = message.content  # type: ignore[union-attr]
    assert "".join(each.token for each in part.logprobs).strip() == whole.output_text  # type: ignore[union-attr]
    assert whole.usage is not None
    counts = whole.usage.output_tokens_details.reasoning_tokens, whole.usage.output_tokens
    assert counts == (counts[1] - len(part.logprobs), counts[1])  # type: ignore[union-attr, arg-type]
    with client.responses.stream(**fields) as stream:
        events = list(stream)
        final = stream.get_final_response()
    kinds = [event.type for event in events]
    first = kinds.index("response.reasoning_text.done")
    assert kinds[2:4] == ["response.output_item.added", "response.content_part.added"]
    assert set(kinds[4:first]) == {"response.reasoning_text.delta"}
    assert kinds[first + 1 : first + 5] == [
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
    ]
    deltas = [event.delta for event in events if event.type == "response.reasoning_text.delta"]
    assert "".join(deltas) == thought.content[0].text  # type: ignore[union-attr, index]
    assert final.output_text == whole.output_text
    assert [each.type for each in final.output] == ["reasoning", "message"]


def test_items_of_reasoning_reach_the_template() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "c"}]}
    call = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}
    items = [thought, {"role": "assistant", "content": "b"}, {"role": "assistant", "content": "d"}, thought, call]
    body = ResponsesBody.model_validate({"input": items})
    found = [message.model_dump(exclude_none=True) for message in chat_of(body).messages]
    assert [(each.get("reasoning_content"), each.get("content"), "tool_calls" in each) for each in found] == [
        ("c", "b", False),
        (None, "d", False),
        ("c", None, True),
    ]
