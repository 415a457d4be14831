"""Tests deadlines of calls. Late work is dropped, and a server that is often late opens the circuit breaker."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import grpc
import numpy as np
import pytest

from suffolk.cli import lookup
from suffolk.cli.main import main
from suffolk.datastore.context_query import ContextQuery
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.documents import Document
from suffolk.datastore.errors import (
    DeadlineExceeded,
    InvalidArgument,
    Unavailable,
    Unsupported,
)
from suffolk.datastore.tree_paths import Paths
from suffolk.serving.clients.remote_datastore import DEFAULT_DEADLINE, INFO_DEADLINE, TOKENIZER_DEADLINE, connect
from suffolk.serving.clients.remote_writer import APPEND_DEADLINE, FLUSH_DEADLINE
from suffolk.serving.decoding.drafters.retrieval.datastore import DatastoreDrafter
from suffolk.serving.net.identity import OPERATOR
from suffolk.serving.net.proto import draft_pb2
from suffolk.serving.store.draft_service.grpc_server import DraftServicer
from suffolk.serving.store.draft_service.server import DraftServer
from suffolk.serving.store.draft_service.service import DraftService
from suffolk.serving.store.live_store.store import create_live_store
from tests.support.brute_force import BruteForceRetriever, assert_same_tree
from tests.support.callers import acting_as
from tests.support.draft_server import connected, drafted, serving
from tests.support.stores import make_word_store
from tests.support.waiting import HANG, until


def test_late_work_is_dropped(brute: BruteForceRetriever) -> None:
    """On a loaded machine, a call may be late before it begins. The test then repeats the call."""
    with serving({"wiki": brute}) as server, connected(server, deadline=0.2) as remote:
        brute.gate.clear()
        while not brute.entered.is_set():
            with pytest.raises(DeadlineExceeded, match="no answer within 200 ms, the deadline"):
                remote.lookup_batch([[1]] * 200)
            remote.breaker.record_success()
        brute.gate.set()
        until(lambda: server.service.admission.in_flight() == 0)
        assert set(brute.calls) == {32}  # of 200 queries, only those that had begun before the deadline
        until(lambda: 'code="DEADLINE_EXCEEDED",method="Lookup"' in server.service.metrics.exposition().decode())


def test_the_deadline_is_checked_before_each_context_with_a_group(tmp_path: Path) -> None:
    """A group's text is scanned, so one context may take as long as 32 others."""
    checks: list[int] = []

    def expired() -> bool:
        checks.append(1)
        return len(checks) > 3

    query = ContextQuery([[]] * 8, group="g")
    with (
        create_live_store(tmp_path / "live", vocab_size=40) as live,
        acting_as(OPERATOR),
        pytest.raises(DeadlineExceeded, match="3 of 8 queries answered"),
    ):
        DraftService({"live": live}, 1).draft([], query, expired)


def test_every_call_of_the_client_has_a_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_word_store(tmp_path)
    seen: dict[str, float | None] = {}
    methods = [method.name for method in draft_pb2.DESCRIPTOR.services_by_name["DraftService"].methods]

    def spied(method: str, answer: Callable[..., object]) -> Callable[..., object]:
        def spy(self: DraftServicer, request: object, context: grpc.ServicerContext) -> object:
            seen[method] = context.time_remaining()
            return answer(self, request, context)

        return spy

    for name in methods:
        monkeypatch.setattr(DraftServicer, name, spied(name, getattr(DraftServicer, name)))
    with (
        open_datastore(tmp_path) as store,
        serving({"words": store}) as server,
        connected(server, deadline=HANG) as remote,
    ):
        remote.lookup("the cat")
        remote.draft([1])
        remote.occurrences([1])
        remote.start_counts([[1]], [Paths(np.array([2]), np.array([-1]))], HANG).result()
        document = Document(None, {}, np.array([1], np.uint32))
        for call in (
            lambda: remote.append([1]),
            lambda: remote.append_stream([document]),
            lambda: remote.get("a"),
            lambda: remote.delete(["a"]),
            remote.flush,
            remote.stats,
        ):
            with pytest.raises(Unsupported):
                call()
    assert set(seen) == set(methods)
    limits = dict.fromkeys(("GetInfo", "Occurrences"), INFO_DEADLINE)
    limits |= {"GetTokenizer": TOKENIZER_DEADLINE, "Append": APPEND_DEADLINE, "Get": APPEND_DEADLINE}
    limits |= {"Stats": APPEND_DEADLINE} | dict.fromkeys(("AppendStream", "Delete", "Flush"), FLUSH_DEADLINE)
    for method, left in seen.items():
        assert left is not None
        assert left < 1.01 * limits.get(method, HANG) + 1  # gRPC rounds long ones up


def test_deadlines_of_a_client(server: DraftServer) -> None:
    url = f"grpc://{server.listening[0]}"
    for store, expected in (
        (connect(url), DEFAULT_DEADLINE),
        (connect(f"{url}?deadline_ms=7"), 0.007),
        (connect(url, 3), 3),
    ):
        assert store.deadline == expected
        store.close()
    with pytest.raises(InvalidArgument, match="deadline is 0 s; it must be above 0 and at most 3600"):
        connect(url, 0)


def test_a_draft_may_take_as_long_as_it_is_worth_unless_a_deadline_is_set(
    server: DraftServer, brute: BruteForceRetriever
) -> None:
    url = f"grpc://{server.listening[0]}"
    query = ContextQuery([[1, 2]], patience=0.15)
    for store, milliseconds in ((connect(url), 150), (connect(f"{url}?deadline_ms=70"), 70), (connect(url, 0.06), 60)):
        brute.gate.clear()
        with pytest.raises(DeadlineExceeded, match=f"no answer within {milliseconds} ms, the deadline"):
            store.find_drafts(query)
        brute.gate.set()
        store.close()


@pytest.mark.parametrize(
    ("words", "asked", "shown"),
    [([], "?deadline_ms=70", 70), (["--deadline", "0.06"], "?deadline_ms=70", 60), ([], "", 80)],
)
def test_the_command_takes_the_deadline_of_its_url(
    words: list[str],
    asked: str,
    shown: int,
    server: DraftServer,
    brute: BruteForceRetriever,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Regression: the option's default used to override the deadline of the URL."""
    monkeypatch.setattr(lookup, "DEADLINE", 0.08)
    brute.gate.clear()
    assert main(["lookup", f"grpc://{server.listening[0]}{asked}", "--ids", "1", *words]) == 2
    assert f"no answer within {shown} ms, the deadline" in capsys.readouterr().err
    brute.gate.set()  # else the server waits for the call


def test_an_unacknowledged_connection_is_replaced_after_a_second(server: DraftServer) -> None:
    """Regression: after a network failure of 15 seconds, TCP used to make its next attempt 15 seconds later."""
    with connected(server):
        assert 1000 in {each for each in map(_user_timeout, os.listdir("/proc/self/fd")) if each is not None}


def _user_timeout(number: str) -> int | None:
    try:
        with socket.socket(fileno=os.dup(int(number))) as copy:
            return copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    except OSError:  # not a TCP socket, or already closed
        return None


def test_asynchronous_calls_report_to_the_breaker(brute: BruteForceRetriever) -> None:
    with serving({"wiki": brute}) as server, connected(server, deadline=HANG) as remote:
        (tree,) = remote.draft_batch_future(ContextQuery([[1, 2]])).result(HANG)
        assert_same_tree(tree, brute.draft([1, 2]))
        assert remote.healthy
        remote.deadline = 0.05
        brute.gate.clear()
        while not remote.breaker.is_open():
            call = remote.draft_batch_future(ContextQuery([[1, 2]]))
            with pytest.raises(DeadlineExceeded, match="no answer within 250 ms, the deadline"):
                call.result(HANG)
            assert not remote.healthy
        with pytest.raises(Unavailable, match="circuit breaker open: the last calls failed"):
            remote.draft_batch_future(ContextQuery([[1, 2]]))
        brute.gate.set()
        remote.deadline = HANG
        calls = []

        def probed() -> bool:
            with suppress(Unavailable):
                calls.append(remote.draft_batch_future(ContextQuery([[1, 2]])))
            return remote.healthy

        until(probed)
        assert len(calls) < 10, "probes are rare"


def test_closing_ends_calls_in_flight(brute: BruteForceRetriever) -> None:
    with serving({"wiki": brute}) as server, connected(server, deadline=HANG) as remote:
        brute.gate.clear()
        call = remote.draft_batch_future(ContextQuery([[1]]))
        remote.close()
        with pytest.raises(Unavailable, match="open it again"):
            call.result(HANG)
        with pytest.raises(Unavailable, match="was closed; open it again"):
            remote.draft_batch_future(ContextQuery([[1]]))
        brute.gate.set()


def test_hung_service_costs_a_deadline_only_now_and_then(brute: BruteForceRetriever) -> None:
    with serving({"wiki": brute}) as server, connected(server, deadline=0.05) as remote:
        drafter = DatastoreDrafter(remote, remote.vocab_size, prefetch=False)
        brute.gate.clear()
        for _ in range(50):
            assert drafted(drafter, [1]) == 0
        failures = drafter.failures.by_reason
        assert failures["DeadlineExceeded"] + failures["Unavailable"] == 50
        assert failures["DeadlineExceeded"] >= 3
        assert len(brute.calls) <= failures["DeadlineExceeded"] < 25  # the open breaker made the other calls fail fast
        with pytest.raises(Unavailable, match="circuit breaker open: the last calls failed"):
            remote.draft([1])
        assert remote.info()["generation"] == 7  # not held back
        brute.gate.set()
        remote.deadline = HANG
        until(lambda: drafted(drafter, [1]) > 0)
        assert not remote.breaker.is_open()
