"""Tests log-probabilities of continued texts and of prompts, as evaluation harnesses read them."""

from __future__ import annotations

from typing import Any

import openai
import pytest
import torch

from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.worker.server import WorkerServer
from tests.support.http_requests import ask
from tests.support.openai_server import events
from tests.support.tiny_models import tiny_model

PROMPT = "naïve €, naïve"
FIELDS: dict[str, Any] = {"model": "tiny", "prompt": PROMPT, "temperature": 0}


@pytest.fixture(scope="module")
def scores(target: Target) -> torch.Tensor:
    """float[n, vocab], the log-probabilities after each token of PROMPT, from one forward pass of the same model."""
    model = tiny_model(vocab_size=257, max_position_embeddings=4096)
    with torch.inference_mode():
        return model(torch.tensor([target.tokenizer(PROMPT)["input_ids"]])).logits[0].log_softmax(-1)


@pytest.mark.parametrize("most", [0, 1])
def test_echo_scores_the_prompt_as_lm_eval_asks(
    target: Target, client: openai.OpenAI, scores: torch.Tensor, most: int
) -> None:
    ids = target.tokenizer(PROMPT)["input_ids"]
    prompts: list[Any] = [PROMPT, ids, [ids, ids]]
    for prompt in prompts:
        answer = client.completions.create(**FIELDS | {"prompt": prompt}, max_tokens=most, logprobs=1, echo=True)
        for choice in answer.choices:
            found = choice.logprobs
            assert found is not None
            values, tops = found.token_logprobs or [], found.top_logprobs or []
            assert (values[0], tops[0], len(values), len(found.tokens or ())) == (
                None,
                None,
                len(ids) + most,
                len(values),
            )
            assert values[1 : len(ids)] == pytest.approx(
                [float(row[id]) for row, id in zip(scores, ids[1:], strict=False)]
            )
            for row, top, value in zip(scores, tops[1 : len(ids)], values[1:], strict=False):
                assert max(top.values()) == pytest.approx(float(row.max()))
                assert value in top.values()
        if most == 0:
            assert answer.choices[0].text == PROMPT
            assert answer.choices[0].finish_reason == "length"
            assert answer.usage is not None
            assert answer.usage.completion_tokens == 0


def test_offsets_are_those_of_the_text(target: Target, client: openai.OpenAI) -> None:
    answer = client.completions.create(**FIELDS, max_tokens=0, logprobs=5, echo=True).choices[0]
    assert answer.logprobs is not None
    starts = [
        at for at, letter in enumerate(PROMPT) for _ in letter.encode()
    ]  # the tiny tokenizer has a token for each byte
    assert answer.logprobs.text_offset == starts
    assert (answer.logprobs.tokens or [])[2:5] == ["bytes:\\xc3", "bytes:\\xaf", "v"]


def test_each_alternative_has_an_entry(client: openai.OpenAI) -> None:
    for count in (0, 5, 20):
        found = client.completions.create(**FIELDS, max_tokens=40, logprobs=count).choices[0].logprobs
        assert found is not None
        for name, value, top in zip(
            found.tokens or (), found.token_logprobs or (), found.top_logprobs or (), strict=True
        ):
            assert top[name] == value
            assert len(top) in (count, count + 1)
        text = client.completions.create(**FIELDS, max_tokens=40).choices[0].text
        assert found.text_offset == sorted(found.text_offset or ())
        assert (found.text_offset or [0])[0] == len(PROMPT)  # as in OpenAI's answers, also without ``echo``
        assert (found.text_offset or [0])[-1] <= len(PROMPT) + len(text)


@pytest.mark.parametrize("echo", [True, False])
def test_a_stream_has_the_same_log_probabilities(server: WorkerServer, client: openai.OpenAI, echo: bool) -> None:
    fields = FIELDS | {"max_tokens": 9, "logprobs": 2, "echo": echo}
    whole = client.completions.create(**fields).choices[0].logprobs
    assert whole is not None
    chunks = events(ask(server, "POST", "/v1/completions", fields | {"stream": True})[2])
    parts = [choice["logprobs"] for chunk in chunks for choice in chunk["choices"]]
    for name in ("tokens", "text_offset"):
        assert [each for part in parts for each in part[name]] == getattr(whole, name)


def test_prompt_logprobs_have_vllms_form(target: Target, server: WorkerServer, scores: torch.Tensor) -> None:
    ids = target.tokenizer(PROMPT)["input_ids"]
    fields = FIELDS | {"max_tokens": 3, "prompt_logprobs": 2}
    found = ask(server, "POST", "/v1/completions", fields)[2]["choices"][0]["prompt_logprobs"]
    assert (found[0], len(found)) == (None, len(ids))
    for row, id, entry in zip(scores, ids[1:], found[1:], strict=False):
        assert entry[str(id)]["logprob"] == pytest.approx(float(row[id]))
        assert entry[str(int(row.argmax()))]["rank"] == 1
    chat = {"messages": [{"role": "user", "content": "abc"}], "max_tokens": 3, "prompt_logprobs": 0}
    answer = ask(server, "POST", "/v1/chat/completions", chat)[2]
    assert len(answer["prompt_logprobs"]) == answer["usage"]["prompt_tokens"]
    error = ask(server, "POST", "/v1/chat/completions", chat | {"stream": True})[2]["error"]
    assert error["param"] == "prompt_logprobs"


def test_tokens_can_be_named_by_their_ids(server: WorkerServer) -> None:
    fields = FIELDS | {"max_tokens": 3, "logprobs": 1, "return_tokens_as_token_ids": True}
    found = ask(server, "POST", "/v1/completions", fields)[2]["choices"][0]["logprobs"]
    assert all(name.startswith("token_id:") for name in (*found["tokens"], *found["top_logprobs"][0]))
