"""Tests a worker and its client over real sockets: the engine's text, limits, cancelled calls, and faults."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from suffolk.datastore.errors import (
    DeadlineExceeded,
    Internal,
    InvalidArgument,
    ResourceExhausted,
    Unavailable,
    Unsupported,
)
from suffolk.serving.decoding.engine.loop.prompt import encode_chat, encode_text
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.grammar import Grammar
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.net.proto import decode_pb2
from suffolk.serving.worker.client import WorkerClient, connect_worker
from suffolk.serving.worker.server import WorkerServer
from suffolk.serving.worker.settings import FIELDS, pack_settings, unpack_settings
from tests.support.drafters import eager_decoder
from tests.support.waiting import HANG, until
from tests.support.worker_server import calling, page, working

PROMPT = "abcabcabc, abcabc: "
LONG = SamplingSettings(max_new_tokens=3900)


def alone(target: Target, ids: list[int], settings: SamplingSettings) -> tuple[list[int], str, str]:
    """Tokens, text and end of plain decoding in this process, one request at a time."""
    run = eager_decoder(target, None).generate(ids, settings)
    text = "".join(piece for step in run for piece, _ in step.pieces)
    return run.tokens, text, run.stats.finish


@pytest.mark.parametrize("method", ["Generate", "GetInfo"])
def test_a_malformed_request_is_rejected(method: str, server: WorkerServer, caplog: pytest.LogCaptureFixture) -> None:
    with grpc.insecure_channel(str(server.listening[0])) as channel, pytest.raises(grpc.RpcError) as caught:
        list(channel.unary_stream(f"/suffolk.v1.DecodeService/{method}")(b"\xff\xff no message", timeout=HANG))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "the request is not a message of this method" in caught.value.details()
    assert caplog.records == []


@pytest.mark.parametrize("drafter", ["", "none", None, "prompt-lookup"])
@pytest.mark.parametrize(
    "settings",
    [
        SamplingSettings(max_new_tokens=40),
        SamplingSettings(max_new_tokens=60, temperature=0.7, seed=2**63 - 1),
        SamplingSettings(max_new_tokens=30, temperature=1.5, top_k=20, top_p=0.7, seed=5, ignore_eos=True),
    ],
)
def test_a_stream_is_what_plain_decoding_gives(
    target: Target, client: WorkerClient, settings: SamplingSettings, drafter: str | None
) -> None:
    ids = encode_text(target, PROMPT)
    generation = client.generate(PROMPT, settings, drafter)
    replies = list(generation)
    assert (generation.tokens, "".join(reply.text for reply in replies), replies[-1].finish) == alone(
        target, ids, settings
    )
    assert [bool(reply.finish) for reply in replies] == [False] * (len(replies) - 1) + [True]
    stats = generation.stats
    assert (stats.prompt_tokens, stats.tokens, stats.steps) == (len(ids), len(generation.tokens), len(replies) - 1)
    assert stats.accepted == sum(bool(source) for reply in replies for source in reply.sources)
    assert stats.nodes_proposed >= stats.nodes_verified >= stats.accepted
    assert drafter not in (None, "none") or stats.draft_calls == 0
    assert stats.seconds["forward"] > 0
    assert stats.finish == replies[-1].finish


def test_a_prompt_is_text_a_conversation_or_tokens(target: Target, client: WorkerClient) -> None:
    settings = SamplingSettings(max_new_tokens=12)
    messages = [("system", "be brief"), ("user", "héllo")]
    cases: list[tuple[Any, list[int]]] = [
        ("héllo", encode_text(target, "héllo")),
        (messages, encode_chat(target, messages)),
        ([3, 1, 4, 1, 5], [3, 1, 4, 1, 5]),
    ]
    for prompt, ids in cases:
        generation = client.generate(prompt, settings)
        list(generation)
        assert generation.tokens == alone(target, ids, settings)[0]


def test_text_comes_in_whole_characters_and_ends_before_a_stop_string(target: Target, client: WorkerClient) -> None:
    ids = encode_text(target, PROMPT)
    settings = SamplingSettings(max_new_tokens=300, temperature=1.3, seed=4)
    _, text, _ = alone(target, ids, settings)
    assert any(len(letter.encode()) > 1 for letter in text)  # some are more than one token
    stop = text[len(text) // 2 :][:3]
    stopping = SamplingSettings(max_new_tokens=300, temperature=1.3, seed=4, stop=("never in it", stop))
    replies = list(client.generate(PROMPT, stopping))
    assert "".join(reply.text for reply in replies) == text[: text.index(stop)]
    assert replies[-1].finish == "stop"


def test_many_clients_of_different_settings_get_their_own_text(target: Target, server: WorkerServer) -> None:
    cases = [
        (
            f"{PROMPT} {number}",
            SamplingSettings(20 + number, temperature=0.4 * (number % 3), top_k=5 * (number % 2), seed=number),
            ("", "none")[number % 2],
        )
        for number in range(10)
    ]

    def call(case: tuple[str, SamplingSettings, str]) -> list[int]:
        with calling(server) as client:
            generation = client.generate(*case)
            list(generation)
            return generation.tokens

    with ThreadPoolExecutor(len(cases)) as pool:
        found = list(pool.map(call, cases))
    assert found == [alone(target, encode_text(target, prompt), settings)[0] for prompt, settings, _ in cases]


def test_cancelling_or_closing_the_channel_frees_the_slot(target: Target) -> None:
    with working(target, slots=1, queue=1) as server, calling(server) as client:
        running = client.generate(PROMPT, LONG)
        next(running)
        waiting = client.generate(PROMPT, LONG)
        until(lambda: client.info()["waiting"] == 1)
        threading.Thread(target=waiting.cancel).start()
        assert list(waiting) == []  # it never began
        until(lambda: client.info()["waiting"] == 0)
        with calling(server) as other:
            queued = other.generate(PROMPT, LONG)
            until(lambda: client.info()["waiting"] == 1)
        until(lambda: client.info()["waiting"] == 0)  # closing the channel was enough
        running.close()  # as ``cancel``
        list(running)
        until(lambda: client.info()["running"] == 0)
        stats = client.info()["stats"]
        assert stats["finished"] == {"cancelled": 3}  # those that never began too
        assert len(running.tokens) <= stats["tokens"] < 3900
        with pytest.raises(Unavailable):
            next(queued)
        until(lambda: server.in_flight() == 0)
        counted = 'suffolk_requests_total{code="CANCELLED",method="Generate",tenant="",transport="grpc"} 3.0'
        assert counted in page(server, "/metrics")[1]
        assert len(list(client.generate(PROMPT, SamplingSettings(max_new_tokens=3)))) == 3


def test_a_deadline_ends_a_generation(target: Target, server: WorkerServer, client: WorkerClient) -> None:
    generation = client.generate(PROMPT, LONG, deadline=0.4)
    with pytest.raises(DeadlineExceeded, match="the text was not finished within its deadline; allow more time"):
        list(generation)
    until(lambda: client.info()["running"] == 0 and server.in_flight() == 0)
    assert len(generation.tokens) < 3900


def test_a_full_queue_rejects_at_once(target: Target) -> None:
    with working(target, slots=1, queue=1) as server, calling(server) as client:
        held = [client.generate(PROMPT, LONG) for _ in range(2)]
        until(lambda: client.info()["running"] == client.info()["waiting"] == 1)  # the first waits too, for a moment
        with pytest.raises(ResourceExhausted, match="already has 2 calls, its limit; try again later or raise --slots"):
            next(client.generate(PROMPT, LONG))
        for generation in held:
            generation.cancel()
        until(lambda: server.in_flight() == 0)
        next(client.generate(PROMPT, SamplingSettings(max_new_tokens=1)))


def test_calls_beyond_the_limit_are_rejected_and_the_rest_served(target: Target) -> None:
    def call(server: WorkerServer) -> str:
        with calling(server) as client:
            try:
                return list(client.generate(PROMPT, SamplingSettings(max_new_tokens=60)))[-1].finish
            except ResourceExhausted:
                return "refused"

    with working(target, slots=2, queue=2) as server:
        with ThreadPoolExecutor(24) as pool:
            ends = list(pool.map(call, [server] * 24))
        assert set(ends) <= {"length", "refused"}
        assert ends.count("length") >= 4
        until(lambda: server.in_flight() == 0)
        assert call(server) == "length"


def test_every_setting_is_served_and_arrives() -> None:
    settings = SamplingSettings(
        max_new_tokens=7,
        temperature=0.3,
        top_k=5,
        top_p=0.9,
        seed=11,
        stop=("a", "é"),
        stop_token_ids=(3, 4),
        min_tokens=2,
        include_stop=True,
        skip_special_tokens=False,
        ignore_eos=True,
        min_p=0.1,
        repetition_penalty=1.1,
        presence_penalty=0.2,
        frequency_penalty=-0.2,
        bad_words=((1, 2), (3,)),
        logit_bias=((2, -3.0), (5, 100.0)),
        grammar=Grammar("regex", "[0-9]+"),
        logprobs=0,
        verification="typical",
        epsilon=0.2,
        delta=0.1,
    )
    message = pack_settings(settings)
    assert (
        {field.name for field, _ in message.ListFields()}
        == set(decode_pb2.SamplingSettings.DESCRIPTOR.fields_by_name)
        == set(FIELDS)
    )
    assert unpack_settings(message) == settings
    assert not pack_settings(SamplingSettings()).ListFields()
    with pytest.raises(Unsupported, match="token_mask cannot be sent to a worker"):
        pack_settings(SamplingSettings(token_mask=lambda texts: texts))


def test_settings_act_as_in_an_engine_here(target: Target, client: WorkerClient) -> None:
    ids = encode_text(target, PROMPT)
    settings = SamplingSettings(
        30,
        temperature=0.9,
        min_p=0.01,
        repetition_penalty=1.2,
        presence_penalty=0.5,
        logit_bias={9: 3.5, 11: -100},  # type: ignore[arg-type]
        bad_words=((5,), (6, 7)),
        logprobs=2,
    )
    here = eager_decoder(target, None).generate(ids, settings)
    expected = [each for step in here for each in step.log_probabilities]
    there = client.generate(PROMPT, settings)
    replies = list(there)
    assert there.tokens == here.tokens != alone(target, ids, SamplingSettings(30, temperature=0.9))[0]
    for actual, wanted in zip(there.log_probabilities, expected, strict=True):
        assert (actual.token, actual.value) == (wanted.token, pytest.approx(wanted.value))
        assert [token for token, _ in actual.alternatives] == [token for token, _ in wanted.alternatives]
    assert [len(reply.log_probabilities) for reply in replies] == [len(reply.tokens) for reply in replies]
    assert len(there.log_probabilities[0].alternatives) == 2


def test_the_client_validates_its_arguments(server: WorkerServer, client: WorkerClient) -> None:
    for url in ("http://x", f"grpc://{server.listening[0]}/name", f"grpc://{server.listening[0]}?deadline_ms=3"):
        with pytest.raises(InvalidArgument, match=url.partition("?")[0]):
            connect_worker(url)
    with pytest.raises(InvalidArgument, match="max_nodes is 0; it must be between 1 and 1024"):
        client.generate(PROMPT, max_nodes=0)
    with pytest.raises(InvalidArgument, match="the prompt, of type list, is an array of float64"):
        client.generate([0.5])  # type: ignore[list-item]
    for wrong in ({"settings": {}}, {"drafter": 1}, {"max_nodes": "4"}, {"deadline": "soon"}):
        with pytest.raises(InvalidArgument, match=next(iter(wrong))):
            client.generate(PROMPT, **wrong)  # type: ignore[arg-type]
    for seconds in (0, -1.0, float("nan"), float("inf"), 1e300):
        with pytest.raises(InvalidArgument, match=r"deadline is .* s; it must be above 0 and at most 86400"):
            client.generate(PROMPT, deadline=seconds)
    client.close()
    with pytest.raises(Unavailable, match="Channel closed!; connect again"):
        client.generate(PROMPT)


@pytest.mark.parametrize("text", ["[1]", "{", "[" * 100_000])
def test_malformed_worker_statistics_raise_internal(
    text: str, server: WorkerServer, client: WorkerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: malformed JSON used to raise JSONDecodeError."""
    monkeypatch.setattr(server.service, "info", lambda: decode_pb2.GetWorkerInfoReply(stats_json=text))
    with pytest.raises(Internal, match="the worker sent server info that is not a JSON object"):
        client.info()


def test_the_client_needs_no_torch() -> None:
    code = "import sys, suffolk.serving.worker.client; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
