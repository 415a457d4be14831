"""A prompt is a text, messages or token ids. Anything else is rejected with a message that lists these forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.engine.loop.prompt import Message, encode, encode_chat, encode_text, read_prompt
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.worker.wire import pack_prompt
from tests.support.tiny_models import tiny_model, tiny_tokenizer
from tests.support.worker_server import talking_target

IDS = [3, 1, 4]


@pytest.mark.parametrize(
    "prompt", [IDS, tuple(IDS), np.array(IDS, np.uint16), torch.tensor(IDS), torch.tensor([IDS]), [IDS]]
)
def test_token_ids_come_in_many_ways(prompt: Any) -> None:
    found = read_prompt(prompt)
    assert isinstance(found, np.ndarray)
    assert (found.tolist(), found.dtype) == (IDS, np.int64)
    assert pack_prompt(prompt) == pack_prompt(IDS)


def test_a_text_and_a_conversation_become_tokens_here_as_in_a_worker() -> None:
    target = talking_target()
    messages = [("system", "be brief"), ("user", "héllo")]
    assert encode(target, "héllo").tolist() == encode_text(target, "héllo")
    assert pack_prompt("héllo").text == "héllo"
    mappings: list[Message] = [{"role": role, "content": content} for role, content in messages]
    for given in (messages, mappings, [messages[0], mappings[1]]):
        assert encode(target, given).tolist() == encode_chat(target, messages)
        assert [(each.role, each.content) for each in pack_prompt(given).chat.messages] == messages


FORMS = (
    r"; give a text, a list of messages, each {'role': role, 'content': content} or \(role, content\) of strings, "
    "or a flat list of token ids"
)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (torch.tensor([IDS, IDS]), r"of type Tensor, is an array of int64 of shape \[2, 3\]" + FORMS),
        ([1.7, 2.2], r"of type list, is an array of float64 of shape \[2\]" + FORMS),  # once treated as ids 1 and 2
        ([True, False], "an array of bool"),
        ([[1], [2, 3]], "cannot be read as token ids .*inhomogeneous.*" + FORMS),
        (None, "of type NoneType" + ".*" + FORMS),
        (tiny_tokenizer()("Hello"), "of type BatchEncoding; give its input_ids"),
        (
            [{"role": "user", "content": ["hi"]}],
            r"message 0 of the prompt is \{'role': 'user', 'content': \['hi'\]\}" + FORMS,
        ),
        ([{"role": "user", "content": "hi", "name": "x"}], "message 0 of the prompt is .*'name': 'x'}" + FORMS),
        ([{"role": "user"}], "message 0 of the prompt is {'role': 'user'}" + FORMS),
        ([["user", "hi"]], "an array of <U4.*" + FORMS),
        ([("user", "hi"), ("user",)], r"message 1 of the prompt is \('user',\)" + FORMS),
        ([("user", None)], r"message 0 of the prompt is \('user', None\)" + FORMS),
        (
            "ab\ud800",
            r"the prompt has a surrogate, '\\ud800', at 2: half a character, or a byte that is no UTF-8; convert it",
        ),
        ([("user", "\udcff")], "message 0's content has a surrogate"),
    ],
)
def test_what_is_no_prompt_is_refused_alike_here_and_by_the_client(prompt: Any, message: str) -> None:
    for read in (read_prompt, pack_prompt):
        with pytest.raises(InvalidArgument, match=message):
            read(prompt)


def test_a_text_needs_a_tokenizer() -> None:
    with pytest.raises(InvalidArgument, match="was loaded without a tokenizer; send the prompt as token ids"):
        encode(Target.wrap(tiny_model()), "Hello")
