"""Sends requests to a worker over each transport, as the worker's clients do. Loads no torch."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suffolk.datastore.errors import Internal
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.worker.client import WorkerClient, connect_worker

if TYPE_CHECKING:
    from suffolk.serving.decoding.engine.loop.engine import Engine


@dataclass(frozen=True, slots=True)
class StreamedAnswer:
    """One answer.

    Attributes:
        text: the whole text.
        tokens: number of tokens in the text.
        first: seconds from the request to its first token; None if the answer came in one piece.
        seconds: seconds from the request to the end of its answer.
    """

    text: str
    tokens: int
    first: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class StreamRun:
    """The answers to all requests in order, and the seconds from the first request to the last answer."""

    answers: list[StreamedAnswer]
    seconds: float

    @property
    def rate(self) -> float:
        """Tokens per second of all streams together."""
        return sum(each.tokens for each in self.answers) / self.seconds


Ask = Callable[[Sequence[int]], StreamedAnswer]
"""Sends one prompt of token ids and reads the whole answer. Called from several threads."""


def run_streams(ask: Ask, prompts: Sequence[Sequence[int]], streams: int) -> StreamRun:
    """Send all ``prompts``, ``streams`` at a time; when an answer ends, its stream sends the next request."""
    with ThreadPoolExecutor(streams) as pool:
        begin = time.perf_counter()
        answers = list(pool.map(ask, prompts))
        return StreamRun(answers, time.perf_counter() - begin)


ENGINE, GRPC, HTTP_STREAM, HTTP_WHOLE = "engine", "gRPC", "HTTP, streamed", "HTTP, whole"
TRANSPORTS = (ENGINE, GRPC, HTTP_STREAM, HTTP_WHOLE)
"""Transports to the same engine. The first is a call in the engine's process."""
_TIMEOUT = 600
"""Seconds without a byte after which a request fails."""


@dataclass(frozen=True, slots=True)
class WorkerRequests:
    """The requests of one run, and their destination.

    Attributes:
        transport: one of ``TRANSPORTS`` except the first.
        address: HOST:PORT.
        prompts: token ids of each prompt.
        streams: requests that run at once.
        drafter, max_nodes: as in ``Engine.generate``.
        sampling: max_new_tokens, temperature, top_p, seed and ignore_eos, as in ``SamplingSettings``.
    """

    transport: str
    address: str
    prompts: list[list[int]]
    streams: int
    drafter: str
    max_nodes: int
    sampling: dict[str, Any]

    def body(self, prompt: Sequence[int]) -> dict[str, Any]:
        """The body of a request to /v1/completions."""
        stream, sampling = self.transport == HTTP_STREAM, dict(self.sampling)
        return {
            "prompt": list(prompt),
            "max_tokens": sampling.pop("max_new_tokens"),
            **sampling,
            "suffolk": {"drafter": self.drafter, "max_nodes": self.max_nodes},
            "stream": stream,
            **({"stream_options": {"include_usage": True}} if stream else {}),
        }


def asking(requests: WorkerRequests) -> Ask:
    """Return a function that sends one of the ``requests``. Over HTTP every calling thread has its own connection."""
    if requests.transport == GRPC:
        return partial(generate, connect_worker(f"grpc://{requests.address}"), requests)
    return _ask_http(requests)


def generate(decoder: Engine | WorkerClient, requests: WorkerRequests, prompt: Sequence[int]) -> StreamedAnswer:
    """Generate with ``decoder``, in this process or over gRPC. Time the tokens as they come."""
    begin, first, texts = time.perf_counter(), None, []
    generation = decoder.generate(prompt, SamplingSettings(**requests.sampling), requests.drafter, requests.max_nodes)
    for step in generation:
        first = first or time.perf_counter() - begin
        texts.append(step.text)
    return StreamedAnswer("".join(texts), len(generation.tokens), first, time.perf_counter() - begin)


def _ask_http(requests: WorkerRequests) -> Ask:
    local = threading.local()

    def ask(prompt: Sequence[int]) -> StreamedAnswer:
        if not hasattr(local, "connection"):
            local.connection = http.client.HTTPConnection(requests.address, timeout=_TIMEOUT)
        begin = time.perf_counter()
        data = json.dumps(requests.body(prompt))
        local.connection.request("POST", "/v1/completions", data, {"Content-Type": "application/json"})
        reply = local.connection.getresponse()
        if reply.status != http.client.OK:
            raise Internal(f"{requests.address} answered {reply.status}: {reply.read().decode()[:300]}")
        if requests.transport == HTTP_STREAM:
            return _read_events(reply, begin)
        found = json.loads(reply.read())
        text, tokens = found["choices"][0]["text"], found["usage"]["completion_tokens"]
        return StreamedAnswer(text, tokens, None, time.perf_counter() - begin)

    return ask


def _read_events(reply: http.client.HTTPResponse, begin: float) -> StreamedAnswer:
    """Read a streamed answer. ``begin``: when its request was sent."""
    first, texts, tokens = None, list[str](), 0
    for line in reply:
        content = line.removeprefix(b"data: ").strip()
        if not content or content == b"[DONE]":
            continue
        first = first or time.perf_counter() - begin
        chunk = json.loads(content)
        if "error" in chunk:
            raise Internal(f"the stream ended with an error: {chunk['error']}")
        texts += [choice["text"] for choice in chunk["choices"]]
        tokens = (chunk.get("usage") or {}).get("completion_tokens", tokens)
    return StreamedAnswer("".join(texts), tokens, first, time.perf_counter() - begin)


def send(file: str) -> dict[str, Any]:
    """Send the ``WorkerRequests`` in a file of JSON. Returns the fields of ``StreamRun``. For a process of its own."""
    requests = WorkerRequests(**json.loads(Path(file).read_text()))
    return asdict(run_streams(asking(requests), requests.prompts, requests.streams))
