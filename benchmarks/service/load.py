"""Clients that load a draft service: one at a time, many in a closed loop, or at a fixed rate."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import grpc

from suffolk.serving.transport.retry_times import RETRY_SECONDS, sent_retry_seconds

METHOD = "/suffolk.v1.DraftService/Draft"
CHANNELS = 4
"""Connections that the clients share."""


@dataclass(slots=True)
class Load:
    """What clients saw.

    Attributes:
        seconds: duration.
        answered: seconds of each answered call.
        refused: seconds of each refused call.
        codes: calls by status code; hinted: refusals that said when to try again.
    """

    seconds: float = 0.0
    answered: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    codes: Counter[str] = field(default_factory=Counter)
    hinted: int = 0


def run_closed(target: str, requests: Sequence[bytes], clients: int, seconds: float, deadline: float) -> Load:
    """Each of ``clients`` sends its next call when the last one has ended; after a refusal, RETRY_SECONDS later."""
    return asyncio.run(_run(target, requests, seconds, deadline, clients, 0.0))


def run_open(target: str, requests: Sequence[bytes], rate: float, seconds: float, deadline: float) -> Load:
    """Send ``rate`` calls a second, whether or not earlier ones have ended. Refused calls are not repeated."""
    return asyncio.run(_run(target, requests, seconds, deadline, 0, rate))


async def _run(
    target: str,
    requests: Sequence[bytes],
    seconds: float,
    deadline: float,
    clients: int,
    rate: float,
) -> Load:
    load, numbers = Load(), count()
    channels = [grpc.aio.insecure_channel(target, [("suffolk.channel", n)]) for n in range(CHANNELS)]
    drafts: list[Any] = [channel.unary_unary(METHOD) for channel in channels]  # of bytes, so that clients cost little

    async def call(number: int) -> float:
        """Make one call. Returns the seconds to wait after a refusal, else 0."""
        begin = time.perf_counter()
        try:
            await drafts[number % CHANNELS](requests[number % len(requests)], timeout=deadline)
        except grpc.aio.AioRpcError as error:
            load.codes[error.code().name] += 1
            if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                return 0.0
            load.refused.append(time.perf_counter() - begin)
            hint = sent_retry_seconds(error.trailing_metadata())
            load.hinted += hint is not None
            return RETRY_SECONDS if hint is None else hint
        load.codes["OK"] += 1
        load.answered.append(time.perf_counter() - begin)
        return 0.0

    async def client() -> None:
        while time.perf_counter() < end:
            if wait := await call(next(numbers)):
                await asyncio.sleep(min(wait, max(0.0, end - time.perf_counter())))

    await asyncio.gather(*(call(number) for number in range(CHANNELS)))  # connects
    load.answered.clear()
    load.codes.clear()
    begin = time.perf_counter()
    end = begin + seconds
    if clients:
        await asyncio.gather(*(client() for _ in range(clients)))
    else:
        running: set[asyncio.Task[float]] = set()
        sent = 0
        while (now := time.perf_counter()) < end:
            for _ in range(int((now - begin) * rate) - sent):
                task = asyncio.create_task(call(next(numbers)))
                running.add(task)
                task.add_done_callback(running.discard)
                sent += 1
            await asyncio.sleep(0.001)
        await asyncio.gather(*running)
    load.seconds = time.perf_counter() - begin
    for channel in channels:
        await channel.close()
    return load
