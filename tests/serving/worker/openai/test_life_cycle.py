"""Tests requests of OpenAI's API from admission to their end, with disconnected and slow clients, stops, and recordings."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest

from suffolk.serving.decoding.engine.loop.step import Step
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.decoding.replay.read import read_recordings
from suffolk.serving.decoding.replay.recorder import Recorder
from suffolk.serving.worker.call import StepJoiner
from suffolk.serving.worker.server import WorkerServer
from tests.support.http_requests import ask
from tests.support.openai_server import client_of, events
from tests.support.waiting import HANG, until
from tests.support.worker_server import calling, page, talking_target, working

LONG: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "abc"}],
    "max_tokens": 3900,
    "temperature": 0,
    "extra_body": {"ignore_eos": True},
}
SHORT = LONG | {"max_tokens": 3}


def test_a_stream_that_is_closed_frees_its_slot(target: Target) -> None:
    with working(target, slots=1, queue=1) as server, client_of(server) as client:
        stream = client.chat.completions.create(**LONG, stream=True)
        next(iter(stream))
        stream.close()
        until(lambda: server.service.engine.stats()["finished"] == {"cancelled": 1})
        until(lambda: server.in_flight() == 0)
        assert (
            'suffolk_requests_total{code="CANCELLED",method="ChatCompletions",tenant="",transport="http"} 1.0'
            in page(server, "/metrics")[1]
        )
        assert client.chat.completions.create(**SHORT).usage.completion_tokens == 3  # type: ignore[union-attr]


def test_more_texts_than_the_worker_ever_takes_are_a_wrong_value(target: Target) -> None:
    with working(target, slots=1, queue=1) as server:
        for path, body in (
            ("chat/completions", {"messages": [{"role": "user", "content": "abc"}], "n": 3}),
            ("completions", {"prompt": ["a"] * 3}),
        ):
            status, _, reply = ask(server, "POST", f"/v1/{path}", body | {"max_tokens": 1})
            assert (status, reply["error"]["param"]) == (400, "n")
            assert "asks for 3 texts; this worker takes 2 at once" in reply["error"]["message"]
        assert (
            ask(
                server,
                "POST",
                "/v1/chat/completions",
                {"messages": [{"role": "user", "content": "abc"}], "n": 2, "max_tokens": 1},
            )[0]
            == 200
        )


@pytest.mark.parametrize("texts", [1, 2])
def test_a_client_that_hangs_up_frees_its_slots(texts: int, target: Target) -> None:
    """A client that disconnects frees its slots, whether it streams or not, and whether its text runs or waits."""
    with working(target, slots=1, queue=3) as server:
        engine = server.service.engine
        body = (
            b'{"messages": [{"role": "user", "content": "abc"}], "max_tokens": 3900, "n": %d, "ignore_eos": true}'
            % texts
        )
        head = (
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        )
        assert server.http is not None
        with socket.create_connection((server.http.host, server.http.port), HANG) as connection:
            connection.sendall(head % len(body) + body)
            until(lambda: engine.stats()["running"] == 1 and engine.stats()["waiting"] == texts - 1)
        until(lambda: engine.stats()["finished"] == {"cancelled": texts})
        until(lambda: server.in_flight() == 0)


def test_the_asynchronous_client(target: Target) -> None:
    async def run(server: WorkerServer) -> None:
        async with openai.AsyncOpenAI(base_url=f"http://{server.http}/v1", api_key="x", timeout=HANG) as client:
            whole = [client.chat.completions.create(**LONG | {"max_tokens": 20}) for _ in range(6)]
            texts = {found.choices[0].message.content for found in await asyncio.gather(*whole)}
            streamed = ""
            async for chunk in await client.chat.completions.create(**LONG | {"max_tokens": 20}, stream=True):
                streamed += chunk.choices[0].delta.content or ""
            assert texts == {streamed}
            waiting = asyncio.create_task(client.chat.completions.create(**LONG))
            while (stats := server.service.engine.stats())["requests"] < 7 or not stats["running"]:
                await asyncio.sleep(0.01)
            waiting.cancel()

    with working(target) as server:
        asyncio.run(run(server))
        until(lambda: server.in_flight() == 0)
        until(lambda: server.service.engine.stats()["finished"] == {"length": 7, "cancelled": 1})


def test_a_full_queue_rejects_at_once(target: Target) -> None:
    with working(target, slots=1, queue=1) as server, client_of(server) as client:
        stream = client.chat.completions.create(**LONG, stream=True)
        next(iter(stream))
        with calling(server) as other:  # gRPC takes the second place: there is one queue
            held = other.generate("abc", SamplingSettings(3900, ignore_eos=True))
            until(lambda: server.in_flight() == 2)
            with pytest.raises(openai.RateLimitError, match="already has 2 calls, its limit") as caught:
                client.chat.completions.create(**SHORT)
            assert caught.value.response.headers["retry-after"] == "1"
            held.cancel()
        until(lambda: server.in_flight() == 1)
        with pytest.raises(openai.RateLimitError, match="and its limit of .* leaves no room for 2 more"):
            client.chat.completions.create(**SHORT, n=2)
        stream.close()
        until(lambda: server.in_flight() == 0)
        assert client.chat.completions.create(**SHORT, n=2).usage.completion_tokens == 6  # type: ignore[union-attr]


def test_a_slow_reader_holds_no_slot_and_is_cut_off(target: Target) -> None:
    body = (
        b'{"messages": [{"role": "user", "content": "abc"}], "stream": true, "max_tokens": 3900, "ignore_eos": true, '
    )
    body += b'"logprobs": true, "top_logprobs": 20}'
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with working(target, slots=1, queue=1, slow_client_seconds=0.3) as server:
        assert server.http is not None
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((server.http.host, server.http.port))
        connection.sendall(head % len(body) + body)
        until(lambda: server.service.engine.stats()["requests"] == 1 and server.in_flight() == 0)
        assert 'code="CANCELLED",method="ChatCompletions"' in page(server, "/metrics")[1]
        connection.close()


def test_stopping_lets_running_texts_finish(target: Target) -> None:
    with working(target, slots=1, grace=HANG) as server, client_of(server) as client:
        stream = iter(client.chat.completions.create(**LONG | {"max_tokens": 300}, stream=True))
        next(stream)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        until(lambda: ask(server, "GET", "/health")[0] == 503)
        status, headers, reply = ask(server, "POST", "/v1/completions", {"prompt": "abc"})
        assert (status, reply["error"]["type"], headers["retry-after"]) == (503, "server_error", "1")
        assert [chunk.choices[0].finish_reason for chunk in stream][-1] == "length"
        stopping.join(HANG)


@pytest.mark.parametrize("stream", [True, False])
def test_texts_that_outlast_the_grace_end_with_an_error(
    target: Target, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    body = LONG | LONG["extra_body"] | {"stream": stream}
    del body["extra_body"]  # what the client does: its fields are fields of the request
    with working(target, slots=1, grace=0.1) as server, ThreadPoolExecutor(2) as pool:
        answers = [
            pool.submit(ask, server, "POST", "/v1/chat/completions", body) for _ in range(2)
        ]  # one runs, one waits
        until(lambda: server.service.engine.stats()["waiting"] == 1 and server.service.engine.stats()["running"] == 1)
        server.stop()
        for status, _, reply in (answer.result() for answer in answers):
            error = events(reply)[-1]["error"] if stream else reply["error"]
            assert (status, error["code"]) == (200 if stream else 503, "unavailable")
            assert "the worker is stopping" in error["message"]
    messages = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert [each.exc_info for each in messages] == [None]
    assert "2 texts are cancelled" in messages[0].message


def test_stopping_cancels_texts_that_outlast_the_grace(target: Target) -> None:
    with working(target, slots=1, grace=0.1) as server, client_of(server) as client:
        stream = iter(client.chat.completions.create(**LONG, stream=True))
        next(stream)
        server.stop()
        until(lambda: server.service.engine.stats()["running"] == 0)
        with pytest.raises(openai.APIError, match="the worker is stopping"):
            list(stream)


def test_an_engine_that_dies_ends_the_stream_with_an_error() -> None:
    target = talking_target()
    with working(target, slots=1) as server, client_of(server) as client:
        stream = iter(client.chat.completions.create(**LONG, stream=True))
        next(stream)

        def broken(*args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("the device is gone")

        target.model.forward = broken
        with pytest.raises(openai.APIError, match="the device is gone"):
            list(stream)
        until(lambda: ask(server, "GET", "/health")[0] == 503)


def test_texts_are_recorded_unless_they_are_to_be_forgotten(target: Target, tmp_path: Path) -> None:
    path = tmp_path / "day.jsonl"
    with (
        Recorder(path, target.vocab_size) as recorder,
        working(target, recorder=recorder) as server,
        client_of(server) as client,
    ):
        client.chat.completions.create(**SHORT, n=2)
        fields: Any = {"model": "tiny", "prompt": "abc", "max_tokens": 4}
        client.completions.create(**fields)
        client.completions.create(**fields, extra_body={"suffolk": {"remember": False}})
    found = read_recordings([path])
    assert sorted((each.group, len(each.generated)) for each in found) == [("chat", 3), ("chat", 3), ("text", 4)]


def test_a_stream_interval_joins_steps(target: Target) -> None:
    body = {"messages": LONG["messages"], "max_tokens": 60, "temperature": 0, "stream": True, "ignore_eos": True}
    with working(target) as server, working(target, stream_interval=60.0) as joined:
        one, other = (events(ask(each, "POST", "/v1/chat/completions", body)[2]) for each in (server, joined))
        with calling(joined) as client:
            replies = list(client.generate("abc", SamplingSettings(60, ignore_eos=True)))
    first, second = ([choice for chunk in each for choice in chunk["choices"]] for each in (one, other))
    assert len(second) <= 4 < len(first)  # the role, the first token, the rest, the end
    assert [len(reply.tokens) for reply in replies] == [1, 59]
    texts = ["".join(choice["delta"].get("content", "") for choice in each) for each in (first, second)]
    assert texts[0] == texts[1]


def test_joined_steps_lose_nothing() -> None:
    steps = [Step((1,), (0,), (("a", 0),), ""), Step((2, 3), (1, 0), (("b", 1),), ""), Step((4,), (2,), (), "eos")]
    joiner = StepJoiner(60.0)
    assert [joiner.add(step) for step in steps] == [
        steps[0],
        None,
        Step((2, 3, 4), (1, 0, 2), (("b", 1),), "eos"),
    ]
