"""Replicas and shards in processes are killed and stopped under load, while a text is generated from their drafts."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from suffolk.datastore.errors import SuffolkError
from suffolk.serving.clients.fanout.datastore import FanoutDatastore
from suffolk.serving.decoding.drafters.retrieval.datastore import DatastoreDrafter
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.step import Step
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.drafters import alone, eager_loop
from tests.support.fanout import opened, replicas, serve
from tests.support.forked import running
from tests.support.processes import WAIT, Running
from tests.support.stores import make_store
from tests.support.tiny_models import VOCAB, tiny_model
from tests.support.waiting import HANG, until

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
SETTINGS = SamplingSettings(max_new_tokens=100)


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


@pytest.fixture
def servers(store: Path) -> Iterator[list[Running]]:
    with running(*serve(store)) as first, running(*serve(store)) as second:
        yield [first, second]


@pytest.fixture
def remote(servers: list[Running]) -> Iterator[FanoutDatastore]:
    with opened(f"grpc://{','.join(each.endpoint() for each in servers)}/code", HANG) as remote:
        for _ in range(64):  # enough to know what is late
            remote.draft(PROMPT)
        yield remote


def generate(target: Target, remote: FanoutDatastore, expected: list[int]) -> int:
    """Generate the text with drafts. Returns the number of accepted tokens; the text must be the expected one."""
    drafter = DatastoreDrafter(remote, VOCAB, prefetch=False)
    loop = eager_loop(target, {"datastore": drafter})
    loop.join(Request(1, target, PROMPT, SETTINGS, "datastore"))
    accepted, generated = 0, []
    while loop.running:
        for _, step in loop.step():
            if isinstance(step, Step):
                accepted += len(step.tokens) - 1
                generated += step.tokens
    assert generated == expected
    return accepted


class Load:
    """Threads that draft until ``stop``, and the errors of their calls."""

    def __init__(self, remote: FanoutDatastore) -> None:
        self.errors: list[SuffolkError] = []
        self.calls = 0
        self._remote, self._ended = remote, threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(3)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                assert len(self._remote.draft(PROMPT))
            except SuffolkError as error:
                self.errors.append(error)
            self.calls += 1


def test_a_killed_replica_costs_no_call_and_returns(
    remote: FanoutDatastore, servers: list[Running], store: Path, target: Target, expected: list[int]
) -> None:
    load = Load(remote)
    first, second = replicas(remote)
    until(lambda: load.calls > 20)
    servers[0].process.kill()
    servers[0].process.wait(WAIT)
    until(lambda: not first.is_up)
    assert generate(target, remote, expected) > 0
    with running(*serve(store, servers[0].endpoint())):
        until(lambda: first.is_up)
        before = first.calls
        until(lambda: first.calls > before)
        load.stop()
    assert load.errors == []
    assert first.ejections  # on a busy machine, it may be late and so ejected once more when it is back
    assert not second.ejections


def test_a_stopped_replica_is_hedged_around(
    remote: FanoutDatastore, servers: list[Running], target: Target, expected: list[int]
) -> None:
    first, second = replicas(remote)
    hedges = second.hedges
    servers[0].process.send_signal(signal.SIGSTOP)  # a call that waits for it lasts HANG
    assert generate(target, remote, expected) > 0
    # The text has few calls, and perhaps none to the stopped one.
    until(lambda: len(remote.draft(PROMPT)) > 0 and first.errors > 0)
    assert second.hedges > hedges
    servers[0].process.send_signal(signal.SIGCONT)
    until(lambda: first.is_up)


def test_a_shard_that_is_killed_leaves_partial_drafts_and_the_same_text(
    store: Path, target: Target, expected: list[int], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    make_store(other, [[expected[::-1]]], vocab_size=VOCAB).close()
    with running(*serve(store)) as first, running(*serve(other)) as second:
        address = f"grpc://{first.endpoint()}+{second.endpoint()}/code"
        with opened(address, HANG) as remote:
            assert not remote.draft(PROMPT).partial
            assert generate(target, remote, expected) > 0
            second.process.kill()
            second.process.wait(WAIT)
            tree = remote.draft(PROMPT)
            assert (tree.partial, len(tree) > 0) == (True, True)
            assert generate(target, remote, expected) > 0
            first.process.kill()
            first.process.wait(WAIT)
            assert generate(target, remote, expected) == 0


def test_no_replica_at_all_leaves_the_text_as_it_is(
    remote: FanoutDatastore, servers: list[Running], target: Target, expected: list[int]
) -> None:
    for each in servers:
        each.process.kill()
        each.process.wait(WAIT)
    assert generate(target, remote, expected) == 0
