"""A draft server stalls, is killed and restarts while a text is generated from its drafts."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from suffolk.serving.clients.remote_datastore import RemoteDatastore, connect
from suffolk.serving.decoding.drafters.retrieval.datastore import DatastoreDrafter
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.step import Step
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.drafters import alone, eager_loop
from tests.support.forked import running
from tests.support.processes import WAIT, Running
from tests.support.stores import make_store
from tests.support.tiny_models import VOCAB, tiny_model
from tests.support.waiting import HANG, until

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
SETTINGS = SamplingSettings(max_new_tokens=200)
DEADLINE = 0.1


class Generating:
    """Generates the same text repeatedly with drafts of ``remote``, and compares every token with plain decoding."""

    def __init__(self, target: Target, expected: list[int], remote: RemoteDatastore) -> None:
        self.target, self.expected, self.remote = target, expected, remote
        self.drafter = DatastoreDrafter(remote, VOCAB, prefetch=True)
        self.loop = eager_loop(target, {"datastore": self.drafter})
        self.longest = 0.0

    def step(self) -> bool:
        """Run one step; return whether a draft was accepted."""
        if not self.loop.running:
            self.loop.join(Request(1, self.target, PROMPT, SETTINGS, "datastore"))
        waited = self.loop.stats.seconds["wait"]
        ((request, answer),) = self.loop.step()
        self.longest = max(self.longest, self.loop.stats.seconds["wait"] - waited)
        assert isinstance(answer, Step)
        assert request.generated == self.expected[: len(request.generated)]
        return len(answer.tokens) > 1

    def steps_wait(self, steps: int) -> float:
        """Return the total seconds that ``steps`` steps wait for drafts."""
        before = self.loop.stats.seconds["wait"]
        for _ in range(steps):
            self.step()
        return self.loop.stats.seconds["wait"] - before

    def until(self, condition: Callable[[], bool]) -> None:
        until(lambda: bool(self.step() and False) or condition())

    def until_prefetched(self) -> None:
        """Wait until one more draft was prefetched."""
        before = self.drafter.stats()["prefetched"]
        self.until(lambda: self.drafter.stats()["prefetched"] > before)


@pytest.fixture(scope="module")
def target() -> Target:
    return Target.wrap(tiny_model())


@pytest.fixture(scope="module")
def expected(target: Target) -> list[int]:
    return alone(target, PROMPT, SETTINGS)


@pytest.fixture(scope="module")
def store(expected: list[int], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stores") / "answers"
    make_store(path, [[[*PROMPT, *expected]]], vocab_size=VOCAB).close()
    return path


def serve(store: Path, endpoint: str = "127.0.0.1:0") -> tuple[str, ...]:
    return ("serve", str(store), "--listen", endpoint, "--http", "off")


@pytest.fixture
def server(store: Path) -> Iterator[Running]:
    with running(*serve(store)) as server:
        yield server


@pytest.fixture
def generating(target: Target, expected: list[int], server: Running) -> Iterator[Generating]:
    remote = connect(f"grpc://{server.endpoint()}", HANG)
    made = Generating(target, expected, remote)
    made.until(made.step)  # the first call, which connects, may be slow
    remote.deadline = DEADLINE
    made.until_prefetched()  # the call in flight still had the long deadline
    yield made
    remote.close()


def test_a_server_that_stalls_costs_a_few_deadlines_and_is_used_again(generating: Generating, server: Running) -> None:
    server.process.send_signal(signal.SIGSTOP)
    generating.until(generating.remote.breaker.is_open)
    failed = generating.drafter.stats()["failed"]
    waited = generating.steps_wait(300)
    assert waited < 30 * DEADLINE, "no step waits for a service that does not answer"
    assert generating.drafter.stats()["failed"] > failed
    server.process.send_signal(signal.SIGCONT)
    begin = time.monotonic()
    until(generating.step)
    print(f"used again after {time.monotonic() - begin:.2f} s; longest wait {generating.longest:.3f} s")


def test_a_server_that_is_killed_and_started_again_is_used_again(
    generating: Generating, server: Running, store: Path
) -> None:
    until(generating.step)
    server.process.kill()
    server.process.wait(WAIT)
    generating.until(generating.remote.breaker.is_open)
    assert generating.steps_wait(300) < 30 * DEADLINE
    assert generating.drafter.stats()["failed Unavailable"] > 0
    with running(*serve(store, server.endpoint())):
        begin = time.monotonic()
        until(generating.step)
        print(f"used again after {time.monotonic() - begin:.2f} s; longest wait {generating.longest:.3f} s")
