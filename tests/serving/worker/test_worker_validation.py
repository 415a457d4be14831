"""Tests invalid requests to a worker. Each is rejected with the field, the value and the limit."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.net.proto import decode_pb2, decode_pb2_grpc
from suffolk.serving.worker import limits
from suffolk.serving.worker.server import WorkerServer, unpack_call
from tests.support.waiting import HANG

REQUEST, SAMPLING, CHAT = decode_pb2.GenerateRequest, decode_pb2.SamplingSettings, decode_pb2.Chat
INVALID, UNIMPLEMENTED = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED


NEWER = b"\x98\x06\x01"  # field 99, a varint


@pytest.fixture
def stub(server: WorkerServer) -> Iterator[decode_pb2_grpc.DecodeServiceStub]:
    with grpc.insecure_channel(str(server.listening[0])) as channel:
        yield decode_pb2_grpc.DecodeServiceStub(channel)


def message(role: str, content: str = "x") -> decode_pb2.ChatMessage:
    return decode_pb2.ChatMessage(role=role, content=content)


def asking(**fields: Any) -> decode_pb2.GenerateRequest:
    return REQUEST(text="x", sampling=SAMPLING(**fields))


@pytest.mark.parametrize(
    ("request_", "code", "text"),
    [
        (REQUEST(), INVALID, "prompt: there is none; give one of text, chat and token_ids"),
        (REQUEST(text=""), INVALID, "the prompt is empty"),
        (REQUEST(text="x" * (limits.MAX_TEXT + 1)), INVALID, "text has 1048577 characters; the limit is 1048576"),
        (REQUEST(token_ids=b"abc"), INVALID, "token_ids has 3 bytes; it must be a multiple of 4"),
        (REQUEST(token_ids=b"\xff\xff\xff\xff"), INVALID, "the prompt has ids -1..-1; model tiny has 257"),
        (REQUEST(token_ids=bytes(4 * 4096)), INVALID, "the prompt has 4096 tokens; model tiny takes 4096 in all"),
        (REQUEST(token_ids=bytes(4 * limits.MAX_PROMPT + 4)), INVALID, "token_ids has 1048577 tokens; the limit is"),
        (REQUEST(chat=CHAT()), INVALID, "chat.messages: the number of messages is 0; it must be between 1 and 1024"),
        (
            REQUEST(chat=CHAT(messages=[message("u")] * 1025)),
            INVALID,
            "chat.messages: the number of messages is 1025; it must",
        ),
        (REQUEST(chat=CHAT(messages=[message("r" * 129)])), INVALID, "chat.messages[0].role has 129 characters"),
        (
            REQUEST(chat=CHAT(messages=[message("u", "x" * 600_000)] * 2)),
            INVALID,
            "chat.messages has 1200000 characters",
        ),
        (REQUEST(chat=CHAT(messages=[message("robot")])), INVALID, "the chat template of model tiny rejects the"),
        (REQUEST(text="x", drafter="eagle"), INVALID, "drafter 'eagle' is not loaded; loaded: prompt-lookup"),
        (REQUEST(text="x", drafter="d" * 129), INVALID, "drafter has 129 characters; the limit is 128"),
        (REQUEST(text="x", max_nodes=0), INVALID, "max_nodes is 0; it must be between 1 and 64"),
        (REQUEST(text="x", max_nodes=65), INVALID, "max_nodes is 65; it must be between 1 and 64"),
        (asking(max_new_tokens=0), INVALID, "sampling.max_new_tokens is 0; it must be between 1 and 1048576"),
        (asking(max_new_tokens=2**32 - 1), INVALID, "sampling.max_new_tokens is 4294967295; it must be between"),
        (asking(max_new_tokens=4090), grpc.StatusCode.RESOURCE_EXHAUSTED, "needs 4155 cache rows"),
        (asking(temperature=-1.0), INVALID, "temperature is -1.0; it must be between 0 (greedy) and 100"),
        (asking(temperature=float("nan")), INVALID, "temperature is nan"),
        (asking(top_p=0.0), INVALID, "top_p is 0.0; it must be above 0"),
        (asking(seed=2**63), INVALID, "seed is 9223372036854775808; it must be between"),
        (asking(stop=[""]), INVALID, "stop[0] is ''; it must be the text"),
        (asking(stop=["x"] * 17), INVALID, "sampling.stop: the number of strings is 17; it must be between 0 and 16"),
        (asking(stop=["x" * 257]), INVALID, "sampling.stop[0] has 257 characters; the limit is 256"),
        (asking(min_p=1.1), INVALID, "min_p is 1.1; it must be between 0 (no limit) and 1"),
        (asking(repetition_penalty=0.0), INVALID, "repetition_penalty is 0.0; it must be between 0.01"),
        (asking(presence_penalty=3.0), INVALID, "presence_penalty is 3.0; it must be between -2 and 2"),
        (asking(frequency_penalty=-3.0), INVALID, "frequency_penalty is -3.0; it must be between -2 and 2"),
        (asking(bad_words=[b"abc"]), INVALID, "sampling.bad_words[0] has 3 bytes; it must be a multiple of 4"),
        (
            asking(bad_words=[bytes(4), b""]),
            INVALID,
            "sampling.bad_words[1]: the number of tokens is 0; it must be between",
        ),
        (
            asking(bad_words=[bytes(4)] * 1025),
            INVALID,
            "sampling.bad_words: the number of sequences is 1025; it must be between",
        ),
        (asking(bad_words=[bytes(260)]), INVALID, "the number of tokens is 65; it must be between 1 and 64"),
        (asking(bad_words=[b"\xff\xff\0\0"]), INVALID, "bad_words[0] is (65535,); the vocabulary has 257 ids"),
        (asking(bad_words=[number.to_bytes(4, "little") for number in range(257)]), INVALID, "no token"),
        (asking(logit_bias={1: 100.5}), INVALID, "logit_bias[0][1] is 100.5; it must be between -100 and 100"),
        (asking(logit_bias={257: 1.0}), INVALID, "logit_bias has token id 257; the vocabulary has 257 ids"),
        (
            asking(logit_bias=dict.fromkeys(range(1025), 1.0)),
            INVALID,
            "sampling.logit_bias: the number of tokens is 1025; it must be between 0 and 1024",
        ),
        (asking(logprobs=21), INVALID, "logprobs is 21; it must be between 0 and 20"),
        (
            asking(verification="faith"),
            INVALID,
            "verification is 'faith'; it must be one of",
        ),
        (asking(epsilon=1.5), INVALID, "epsilon is 1.5; it must be above 0 and at most 1"),
        (asking(delta=-0.5), INVALID, "delta is -0.5; it must be above 0 and at most 1"),
        (asking(verification="typical", epsilon=0.0), INVALID, "epsilon is 0.0; it must be above 0"),
        (REQUEST.FromString(NEWER), UNIMPLEMENTED, "request: field number 99 is unknown to this worker; omit it"),
        (
            REQUEST(text="x", sampling=SAMPLING.FromString(NEWER)),
            UNIMPLEMENTED,
            "sampling: field number 99 is unknown to this worker",
        ),
        (
            REQUEST(chat=CHAT.FromString(CHAT(messages=[message("u")]).SerializeToString() + NEWER)),
            UNIMPLEMENTED,
            "chat: field number 99 is unknown to this worker",
        ),
        (
            REQUEST(chat=CHAT(messages=[message("u"), decode_pb2.ChatMessage.FromString(NEWER)])),
            UNIMPLEMENTED,
            "chat.messages[1]: field number 99 is unknown to this worker",
        ),
    ],
)
def test_invalid_requests_are_rejected(
    request_: decode_pb2.GenerateRequest, code: grpc.StatusCode, text: str, stub: decode_pb2_grpc.DecodeServiceStub
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        list(stub.Generate(request_, timeout=HANG))
    assert (caught.value.code(), text in caught.value.details()) == (code, True), caught.value.details()


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (
            REQUEST(chat=CHAT(messages=[decode_pb2.ChatMessage()] * 200_000)),
            "chat.messages: the number of messages is 200000",
        ),
        (asking(bad_words=[b""] * 200_000), "sampling.bad_words: the number of sequences is 200000"),
    ],
)
def test_repeated_fields_are_counted_before_they_are_read(
    request_: decode_pb2.GenerateRequest, text: str, server: WorkerServer
) -> None:
    """Regression: a request of 8 MB used to become millions of objects before its size was checked."""
    tracemalloc.start()
    try:
        with pytest.raises(InvalidArgument, match=text):
            unpack_call(request_, server.service.engine.target)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
