"""Tests answers of OpenAI's API over real sockets: the text of gRPC, streams, several texts, log-probabilities, errors."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import openai
import pytest

from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.worker.server import WorkerServer
from tests.support.http_requests import ask
from tests.support.openai_server import client_of, events
from tests.support.waiting import HANG
from tests.support.worker_server import calling, page, working

MESSAGES: list[Any] = [{"role": "user", "content": "abcabcabc, abcabc: "}]
PROMPT = "abcabcabc, abcabc: "


def text_of_grpc(server: WorkerServer, prompt: Any, settings: SamplingSettings, drafter: str = "none") -> str:
    with calling(server) as client:
        return "".join(step.text for step in client.generate(prompt, settings, drafter))


@pytest.mark.parametrize("drafter", ["none", "prompt-lookup"])
@pytest.mark.parametrize(
    ("fields", "settings"),
    [
        ({"temperature": 0}, SamplingSettings(40)),
        ({"temperature": 0.7, "seed": 5}, SamplingSettings(40, temperature=0.7, seed=5)),
        (
            {"seed": 3, "top_p": 0.8, "presence_penalty": 0.5, "frequency_penalty": -0.5, "logit_bias": {"9": 3.5}},
            SamplingSettings(
                40,
                temperature=1.0,
                seed=3,
                top_p=0.8,
                presence_penalty=0.5,
                frequency_penalty=-0.5,
                logit_bias=((9, 3.5),),
            ),
        ),
        (
            {"seed": 3, "extra_body": {"top_k": 9, "min_p": 0.01, "repetition_penalty": 1.2, "ignore_eos": True}},
            SamplingSettings(40, 1.0, top_k=9, seed=3, min_p=0.01, repetition_penalty=1.2, ignore_eos=True),
        ),
    ],
)
def test_the_text_is_that_of_grpc(
    fields: dict[str, Any], settings: SamplingSettings, drafter: str, server: WorkerServer, client: openai.OpenAI
) -> None:
    extra = fields.get("extra_body", {}) | {"suffolk": {"drafter": drafter}}
    fields = fields | {"extra_body": extra}
    whole = client.chat.completions.create(model="tiny", messages=MESSAGES, max_completion_tokens=40, **fields)
    expected = text_of_grpc(server, [("user", PROMPT)], settings)
    assert whole.choices[0].message.content == expected
    stream = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=40, stream=True, **fields)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == expected
    continued = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=40, **fields)
    assert continued.choices[0].text == text_of_grpc(server, PROMPT, settings)


def test_usage_and_the_end(server: WorkerServer, client: openai.OpenAI) -> None:
    short = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=7, temperature=0)
    usage, choice = short.usage, short.choices[0]
    assert usage is not None
    assert (usage.completion_tokens, usage.total_tokens, choice.finish_reason) == (7, usage.prompt_tokens + 7, "length")
    assert usage.completion_tokens_details is None  # no prediction was sent
    text = choice.message.content or ""
    stopped = client.chat.completions.create(
        model="tiny", messages=MESSAGES, max_tokens=7, temperature=0, stop=["never", text[2:4]]
    )
    assert (stopped.choices[0].message.content, stopped.choices[0].finish_reason) == (
        text[: text.index(text[2:4])],
        "stop",
    )
    assert client.completions.create(model="tiny", prompt=PROMPT).usage.completion_tokens == 16  # type: ignore[union-attr]


def test_a_chat_goes_on_to_the_end_of_its_slot(target: Target) -> None:
    with working(target, capacity=300) as server, client_of(server) as client:
        whole = client.chat.completions.create(
            model="tiny", messages=MESSAGES, temperature=0, extra_body={"ignore_eos": True}
        )
    assert whole.usage is not None
    assert (whole.usage.total_tokens, whole.choices[0].finish_reason) == (300, "length")


def test_a_stream_is_well_formed(server: WorkerServer) -> None:
    body = {"messages": MESSAGES, "max_tokens": 20, "stream": True, "seed": 4, "n": 2}
    status, headers, data = ask(server, "POST", "/v1/chat/completions", body)
    assert (status, headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert headers["cache-control"] == "no-cache"
    chunks = events(data)
    assert {(chunk["id"], chunk["object"], chunk["model"]) for chunk in chunks} == {
        (chunks[0]["id"], "chat.completion.chunk", "tiny")
    }
    for index in (0, 1):
        choices = [each for chunk in chunks for each in chunk["choices"] if each["index"] == index]
        assert choices[0]["delta"] == {"role": "assistant", "content": ""}
        assert [each["finish_reason"] for each in choices] == [None] * (len(choices) - 1) + ["length"]
        assert choices[-1]["delta"] == {}
    assert all("usage" not in chunk for chunk in chunks)


@pytest.mark.parametrize("continuous", [False, True])
def test_usage_of_a_stream(continuous: bool, server: WorkerServer) -> None:
    options = {"include_usage": True, "continuous_usage_stats": continuous}
    body = {"messages": MESSAGES, "max_tokens": 20, "stream": True, "temperature": 0, "stream_options": options}
    chunks = events(ask(server, "POST", "/v1/chat/completions", body)[2])
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 20
    assert all(bool(chunk["usage"]) == continuous for chunk in chunks[:-1])
    if continuous:  # the chunk with the role has no token yet
        assert (chunks[0]["usage"]["completion_tokens"], chunks[1]["usage"]["completion_tokens"] > 0) == (0, True)
    assert "metrics" in chunks[-1]
    assert all("metrics" not in chunk for chunk in chunks[:-1])


def test_several_texts_have_seeds_of_their_own(server: WorkerServer, client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=20, seed=7, n=3)
    expected = [
        text_of_grpc(server, [("user", PROMPT)], SamplingSettings(20, temperature=1.0, seed=seed)) for seed in (7, 8, 9)
    ]
    assert [choice.message.content for choice in whole.choices] == expected
    assert [choice.index for choice in whole.choices] == [0, 1, 2]
    assert whole.usage is not None
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + 60
    texts = {}
    for chunk in client.chat.completions.create(
        model="tiny", messages=MESSAGES, max_tokens=20, seed=7, n=3, stream=True
    ):
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
    assert [texts[index] for index in range(3)] == expected


@pytest.mark.parametrize("fields", [{}, {"seed": -1}], ids=["none", "-1, as vLLM and llama.cpp have it"])
def test_requests_without_a_seed_differ(client: openai.OpenAI, fields: dict[str, Any]) -> None:
    asked = {"model": "tiny", "prompt": PROMPT, "max_tokens": 30, **fields}
    texts = {client.completions.create(**asked).choices[0].text for _ in range(3)}
    assert len(texts) == 3


def test_several_prompts_as_texts_or_tokens(target: Target, client: openai.OpenAI) -> None:
    texts = ["abc", "hello"]
    ids = [target.tokenizer(text)["input_ids"] for text in texts]
    cases: list[Any] = [texts, ids]
    found = [
        client.completions.create(model="tiny", prompt=prompt, n=2, max_tokens=5, seed=1).model_dump()
        for prompt in cases
    ]
    assert found[0]["choices"] == found[1]["choices"]
    assert [choice["index"] for choice in found[0]["choices"]] == [0, 1, 2, 3]
    assert found[0]["usage"]["prompt_tokens"] == sum(map(len, ids))
    one: Any = ids[1]
    single = client.completions.create(model="tiny", prompt=one, max_tokens=5, seed=1)
    assert single.choices[0].text == found[0]["choices"][2]["text"]


def test_echo_repeats_the_prompt(server: WorkerServer, client: openai.OpenAI) -> None:
    expected = PROMPT + text_of_grpc(server, PROMPT, SamplingSettings(9))
    fields: Any = {"model": "tiny", "prompt": PROMPT, "max_tokens": 9, "temperature": 0, "echo": True}
    assert client.completions.create(**fields).choices[0].text == expected
    assert "".join(each.choices[0].text for each in client.completions.create(**fields, stream=True)) == expected


def test_log_probabilities(server: WorkerServer, client: openai.OpenAI) -> None:
    with calling(server) as worker:
        here = worker.generate([("user", PROMPT)], SamplingSettings(12, logprobs=2))
        list(here)
    fields: Any = {"model": "tiny", "messages": MESSAGES, "max_tokens": 12, "temperature": 0}
    whole = client.chat.completions.create(**fields, logprobs=True, top_logprobs=2).choices[0].logprobs
    assert whole is not None
    assert whole.content is not None
    for entry, expected in zip(whole.content, here.log_probabilities, strict=True):
        assert entry.logprob == pytest.approx(expected.value)
        assert [each.logprob for each in entry.top_logprobs] == pytest.approx(
            [value for _, value in expected.alternatives]
        )
    text = client.chat.completions.create(**fields).choices[0].message.content
    assert bytes(byte for entry in whole.content for byte in entry.bytes or ()).decode(errors="replace") == text
    streamed = client.chat.completions.create(**fields, logprobs=True, top_logprobs=2, stream=True)
    parts = [chunk.choices[0].logprobs for chunk in streamed]
    entries = [entry for part in parts if part for entry in part.content or ()]
    assert [each.token for each in entries] == [each.token for each in whole.content]
    assert [each.logprob for each in entries] == pytest.approx([each.logprob for each in whole.content])  # trees differ


def test_log_probabilities_of_continued_texts(client: openai.OpenAI) -> None:
    fields: Any = {"model": "tiny", "prompt": PROMPT, "max_tokens": 12, "temperature": 0, "logprobs": 1}
    whole = client.completions.create(**fields).choices[0].logprobs
    assert whole is not None
    assert len(whole.tokens or ()) == len(whole.token_logprobs or ()) == len(whole.top_logprobs or ()) == 12
    assert [
        top[name] for name, top in zip(whole.tokens or (), whole.top_logprobs or (), strict=True)
    ] == whole.token_logprobs


def test_content_comes_as_text_or_parts_and_nulls_are_defaults(server: WorkerServer) -> None:
    parts = [{"type": "text", "text": "abcabcabc,"}, {"type": "text", "text": "abcabc: "}]
    lines = [{"role": "user", "content": "abcabcabc,\nabcabc: "}]
    found = [
        ask(server, "POST", "/v1/chat/completions", {"max_tokens": 9, "temperature": 0} | body)[2]["choices"]
        for body in (
            {"messages": lines},
            {"messages": [{"role": "user", "content": parts}]},
            {"messages": lines, "model": None, "n": None, "stop": None, "stream": None, "seed": None, "tools": None},
            {"messages": lines, "user": "me", "service_tier": "auto", "store": True, "no such field": [1]},
        )
    ]
    assert found[1:] == found[:1] * 3


def test_speculation_is_reported_in_vllms_form(target: Target) -> None:
    fields: Any = {"model": "tiny", "prompt": [5, 6] * 200, "max_tokens": 60, "temperature": 0}
    drafters = {"prompt-lookup": PromptLookupDrafter(target.vocab_size)}
    with working(target, drafters) as server, client_of(server) as client:  # its planner has not seen other texts
        whole = client.completions.create(**fields)
        plain = client.completions.create(**fields, extra_body={"suffolk": {"drafter": "none"}})
        counted = page(server, "/metrics")[1]
    metrics = whole.model_extra["metrics"]["speculative_decoding"]  # type: ignore[index]
    steps, accepted = metrics["num_spec_steps"], metrics["num_accepted_draft_tokens"]
    assert metrics["mean_acceptance_length"] == pytest.approx(1 + accepted / steps)
    assert metrics["draft_acceptance_rate"] == pytest.approx(accepted / metrics["num_draft_tokens"])
    histogram = metrics["acceptance_histogram"]
    assert len(histogram) == metrics["num_spec_tokens"] + 1
    assert (sum(histogram), sum(count * times for count, times in enumerate(histogram))) == (steps, accepted)
    assert accepted > 0
    assert metrics["by_source"] == {
        "prompt-lookup": {"num_draft_tokens": metrics["num_draft_tokens"], "num_accepted_draft_tokens": accepted}
    }
    for name, value in (
        ("drafts", steps),
        ("draft_tokens", metrics["num_draft_tokens"]),
        ("accepted_tokens", accepted),
    ):
        assert f'vllm:spec_decode_num_{name}_total{{model_name="tiny"}} {float(value)}' in counted
    first = 'vllm:spec_decode_num_accepted_tokens_per_pos_total{model_name="tiny",position="0"} '
    assert f"{first}{float(steps - histogram[0])}" in counted
    assert plain.model_extra["metrics"] is None  # type: ignore[index]
    assert plain.choices == whole.choices


def test_models_versions_and_tokens(target: Target, server: WorkerServer, client: openai.OpenAI) -> None:
    [model] = client.models.list().data
    assert (model.id, model.owned_by, model.model_extra) == ("tiny", "suffolk", {"max_model_len": 4032})
    assert client.models.retrieve("tiny") == model
    with pytest.raises(openai.NotFoundError, match="model 'gpt' does not exist here; this worker serves 'tiny'"):
        client.models.retrieve("gpt")
    assert ask(server, "GET", "/version")[2].keys() == {"version"}
    assert [ask(server, "GET", path)[0] for path in ("/health", "/ready", "/healthz")] == [200] * 3
    ids = target.tokenizer("héllo")["input_ids"]
    assert ask(server, "POST", "/tokenize", {"prompt": "héllo"})[2] == {
        "count": len(ids),
        "max_model_len": 4032,
        "tokens": ids,
        "token_strs": None,
    }
    assert ask(server, "POST", "/detokenize", {"tokens": ids})[2] == {"prompt": "héllo"}
    chat = ask(server, "POST", "/tokenize", {"messages": MESSAGES, "return_token_strs": True})[2]
    whole = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=1)
    assert chat["count"] == len(chat["token_strs"]) == whole.usage.prompt_tokens  # type: ignore[union-attr]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is missing")
def test_curl(server: WorkerServer) -> None:
    body = json.dumps({"messages": MESSAGES, "max_tokens": 5, "temperature": 0, "stream": True})
    words = ("curl", "-sSN", "-H", "Content-Type: application/json", "-d", body)
    url = f"http://{server.http}/v1/chat/completions"
    found = subprocess.run((*words, url), capture_output=True, check=True, timeout=HANG).stdout
    text = "".join(choice["delta"].get("content", "") for chunk in events(found) for choice in chunk["choices"])
    assert text == text_of_grpc(server, [("user", PROMPT)], SamplingSettings(5))
