"""Loads a draft service with clients: one at a time, many in a closed loop, or at a fixed rate. Each side has its own core."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import grpc

from suffolk.datastore.errors import Unavailable
from suffolk.serving.net.admission import RETRY_SECONDS
from suffolk.serving.net.call_errors import sent_retry_seconds

ANNOUNCEMENT = re.compile(r"on grpc (\S+?),? ?(?:http \S+)?$")


@contextlib.contextmanager
def served(store: Path, command: Sequence[str] = ()) -> Iterator[str]:
    """Start ``suffolk serve`` for ``store`` on a free local port, and yield its URL. The server stops with the block.

    The arguments and errors are those of ``serving``.
    """
    with serving(store, command) as (url, _):
        yield url


@contextlib.contextmanager
def serving(store: Path, command: Sequence[str] = ()) -> Iterator[tuple[str, int]]:
    """Start the server like ``served``. Yield its URL and the id of its process. Until it ends, SIGTERM interrupts the caller as
    Ctrl-C does, so that no server is left behind. Call it in the main thread.

    Args:
        command: command of another server that prints the same line when it is ready.

    Raises:
        Unavailable: the server does not start.
    """
    serve = [sys.executable, "-m", "suffolk", "serve", f"store={store}", "--listen", "127.0.0.1:0", "--http", "off"]
    with tempfile.TemporaryFile("w+") as errors:  # an unread pipe could block the server
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        server = subprocess.Popen([*command] or serve, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert server.stdout is not None
            line = server.stdout.readline().strip()
            found = ANNOUNCEMENT.search(line)
            if found is None:
                stop_server(server)  # the server may still run
                errors.seek(0)
                output = f"{line}\n{errors.read()}".strip()[-300:]
                raise Unavailable(f"the draft service of {store} did not start: {output or 'it printed nothing'}")
            yield f"grpc://{found.group(1)}/store", server.pid
        finally:
            stop_server(server)
            signal.signal(signal.SIGTERM, before)


def stop_server(server: subprocess.Popen[str]) -> None:
    """End a server by SIGTERM, or by SIGKILL if that takes longer than 15 s."""
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(timeout=15)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


METHOD = "/suffolk.v1.DraftService/Draft"
CHANNELS = 4
"""Connections that the clients share."""


@dataclass(slots=True)
class Load:
    """Results of the clients' calls.

    Attributes:
        seconds: duration.
        answered: seconds of each answered call.
        refused: seconds of each refused call.
        codes: calls by status code.
        hinted: number of refusals that said when to try again.
    """

    seconds: float = 0.0
    answered: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    codes: Counter[str] = field(default_factory=Counter)
    hinted: int = 0


def run_closed(target: str, requests: Sequence[bytes], clients: int, seconds: float, deadline: float) -> Load:
    """Let each of ``clients`` send its next call when its last call has ended. After a refusal, the client first waits as long as
    the server says, by default RETRY_SECONDS."""
    return asyncio.run(_run(target, requests, deadline, seconds, partial(_by_clients, clients)))


def run_open(target: str, requests: Sequence[bytes], rate: float, seconds: float, deadline: float) -> Load:
    """Send ``rate`` calls a second, whether or not earlier calls have ended. Refused calls are not repeated."""
    return asyncio.run(_run(target, requests, deadline, seconds, partial(_at_rate, rate)))


async def _run(
    target: str,
    requests: Sequence[bytes],
    deadline: float,
    seconds: float,
    send: Callable[[_Calls, float], Awaitable[None]],
) -> Load:
    """Let ``send`` make calls for ``seconds``, and return the results of the calls."""
    channels = [grpc.aio.insecure_channel(target, [("suffolk.channel", n)]) for n in range(CHANNELS)]
    warming, calls = (_Calls(channels, requests, deadline) for _ in range(2))
    await asyncio.gather(*(warming.next() for _ in channels))  # opens each connection
    begin = time.perf_counter()
    await send(calls, begin + seconds)
    calls.load.seconds = time.perf_counter() - begin
    for channel in channels:
        await channel.close()
    return calls.load


async def _by_clients(clients: int, calls: _Calls, end: float) -> None:
    await asyncio.gather(*(_one_after_another(calls, end) for _ in range(clients)))


async def _one_after_another(calls: _Calls, end: float) -> None:
    while time.perf_counter() < end:
        if wait := await calls.next():
            await asyncio.sleep(min(wait, max(0.0, end - time.perf_counter())))


async def _at_rate(rate: float, calls: _Calls, end: float) -> None:
    running: set[asyncio.Task[float]] = set()
    begin, sent = time.perf_counter(), 0
    while (now := time.perf_counter()) < end:
        for _ in range(int((now - begin) * rate) - sent):
            task = asyncio.create_task(calls.next())
            running.add(task)
            task.add_done_callback(running.discard)
            sent += 1
        await asyncio.sleep(0.001)
    await asyncio.gather(*running)


class _Calls:
    """Calls over ``channels`` in turn, each with the next of ``requests``.

    Attributes:
        load: results of these calls.
    """

    def __init__(self, channels: Sequence[grpc.aio.Channel], requests: Sequence[bytes], deadline: float) -> None:
        self.load = Load()
        self._requests = requests
        self._deadline = deadline
        self._numbers = count()
        # The drafts are not decoded, because clients must cost little.
        self._drafts: list[Any] = [channel.unary_unary(METHOD) for channel in channels]

    async def next(self) -> float:
        """Make the next call. Returns the seconds to wait after a refusal, else 0."""
        number, begin = next(self._numbers), time.perf_counter()
        draft, request = self._drafts[number % len(self._drafts)], self._requests[number % len(self._requests)]
        try:
            await draft(request, timeout=self._deadline)
        except grpc.aio.AioRpcError as error:
            return self._failed(error, time.perf_counter() - begin)
        self.load.codes["OK"] += 1
        self.load.answered.append(time.perf_counter() - begin)
        return 0.0

    def _failed(self, error: grpc.aio.AioRpcError, seconds: float) -> float:
        self.load.codes[error.code().name] += 1
        if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
            return 0.0
        self.load.refused.append(seconds)
        hint = sent_retry_seconds(error.trailing_metadata())
        self.load.hinted += hint is not None
        return RETRY_SECONDS if hint is None else hint


@contextmanager
def on_core(place: int) -> Iterator[bool]:
    """Run this thread on the allowed core number ``place``, with all threads and processes that it starts in the block.

    Yields False, and changes nothing, if there are too few cores.
    """
    allowed = os.sched_getaffinity(0)
    if place >= len(allowed):
        yield False
        return
    os.sched_setaffinity(0, {sorted(allowed)[place]})
    try:
        yield True
    finally:
        os.sched_setaffinity(0, allowed)
