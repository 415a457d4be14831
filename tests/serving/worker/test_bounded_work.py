"""The work that one caller can cause is bounded before it is done."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.engine.loop import prompt as prompts
from suffolk.serving.decoding.engine.loop.prompt import PromptTooLong, encode_text
from suffolk.serving.decoding.engine.model.row_contexts import RowContexts
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.logits_processing import BadWords
from suffolk.serving.net.http_body import InvalidField, parse_body
from suffolk.serving.worker import limits
from suffolk.serving.worker.openai.bodies import ChatBody, CompletionBody
from tests.support.http_requests import ask
from tests.support.worker_server import calling, working

PIECE = prompts.PIECE


class Counting:
    """A tokenizer that counts the characters it encodes, and whether two threads encode at once."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self.characters = tokenizer, 0

    def __call__(self, text: str, **more: Any) -> Any:
        assert len(text) <= prompts.SHORT or prompts.LONG_TEXTS._lock.locked()
        self.characters += len(text)
        return self._tokenizer(text, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


@pytest.mark.parametrize("letter", ["a", "é", "😀", " ", "\n"])
def test_a_long_text_is_refused_after_a_part_of_it(letter: str, target: Target) -> None:
    counting = Counting(target.tokenizer)
    slow = replace(target, tokenizer=counting)
    with pytest.raises(
        PromptTooLong,
        match="too long: this model's maximum context length is 4096 tokens; shorten it",
    ):
        encode_text(slow, letter * (1 << 20), limit=4096)
    assert counting.characters == PIECE
    short = letter * (PIECE + 5)
    assert encode_text(slow, short, limit=len(short.encode())) == target.tokenizer(short)["input_ids"]


def test_a_worker_refuses_a_megabyte_of_text(target: Target) -> None:
    slow = replace(target, tokenizer=Counting(target.tokenizer))
    with working(slow) as server:
        before = slow.tokenizer.characters
        with calling(server) as client:
            for prompt in ("x" * (1 << 20), [("user", "x" * ((1 << 20) - 4))]):
                with pytest.raises(InvalidArgument, match="this model's maximum context length is 4096 tokens"):
                    list(client.generate(prompt))
        for path, body in (
            ("/v1/completions", {"prompt": "x" * (1 << 20)}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x" * ((1 << 20) - 4)}]}),
        ):
            status, _, reply = ask(server, "POST", path, body)
            assert (status, reply["error"]["code"]) == (400, "context_length_exceeded")
        assert slow.tokenizer.characters - before == 4 * PIECE
        assert ask(server, "POST", "/tokenize", {"prompt": "x" * (1 << 20)})[0] == 400
        assert ask(server, "POST", "/detokenize", {"tokens": [1] * (limits.MAX_TOKENIZED + 1)})[0] == 400
        assert server.service.engine.stats()["requests"] == 0


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (CompletionBody, {"prompt": ["a"] * 200_000}),
        (ChatBody, {"messages": [{"role": "user", "content": "x"}] * 30_000}),
        (ChatBody, {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * 30_000}]}),
        (CompletionBody, {"prompt": "a", "logit_bias": {str(token): 1.0 for token in range(50_000)}}),
        (CompletionBody, {"prompt": "a", "stop": ["x"] * 200_000}),
    ],
)
def test_long_lists_end_at_their_limit(kind: type[Any], body: Any) -> None:
    with pytest.raises(InvalidField) as caught:
        parse_body(kind, json.dumps(body).encode())
    assert len(str(caught.value)) < 200


def test_bodies_are_admitted_before_they_are_parsed(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    with working(target, slots=1, queue=0) as server:
        parsed: list[bytes] = []
        monkeypatch.setattr("suffolk.serving.worker.openai.endpoint.parse_body", lambda kind, data: parsed.append(data))
        monkeypatch.setattr("suffolk.serving.worker.openai.app.parse_body", lambda kind, data: parsed.append(data))
        with server.service.admission.admit_call():
            for path in ("/v1/completions", "/tokenize", "/detokenize"):
                assert ask(server, "POST", path, {"prompt": "x"})[0] == 429
        assert not parsed


def test_bad_words_look_once_for_each_length() -> None:
    random = np.random.default_rng(5)
    words = tuple(tuple(random.integers(0, 3, 1 + at % 6).tolist()) for at in range(200))
    tree = DraftTree(
        random.integers(0, 3, 12).astype(np.int32),
        np.arange(-1, 11, dtype=np.int32),
        np.ones(12, np.float32),
        np.zeros(12, np.uint32),
    )
    for length in (1, 3, 9):
        text = random.integers(0, 3, length).astype(np.int32)
        found = BadWords(words, 5).apply(torch.zeros(13, 5), RowContexts.of_tree(text, 1, tree))
        for row in range(13):
            before = [*text.tolist(), *tree.tokens[:row].tolist()]
            expected = {word[-1] for word in words if len(word) == 1 or before[-len(word) + 1 :] == list(word[:-1])}
            assert set(torch.nonzero(found[row] == -torch.inf).flatten().tolist()) == expected
