"""Replicas: which one is called, what a late or failing one costs, and which ones are refused."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import suffolk
from suffolk.datastore.context_query import ContextQuery
from suffolk.datastore.errors import DeadlineExceeded, Internal, InvalidArgument, ResourceExhausted, Unavailable
from suffolk.datastore.retriever import AsyncRetriever
from suffolk.serving.clients.fanout.replica_set import HEDGE_BURST, HEDGE_SHARE
from suffolk.serving.clients.fanout.topology import ReplicaAddress, Shard, Topology, write_topology
from suffolk.serving.decoding.drafters.retrieval.datastore import DatastoreDrafter
from suffolk.serving.store.draft_service.server import DraftServer
from tests.support.brute_force import BruteForceRetriever, assert_same_tree
from tests.support.draft_server import CONTEXTS, DOCUMENTS, VOCABULARY, connected, drafted, serving
from tests.support.fanout import calls, opened, replicas
from tests.support.stores import make_store
from tests.support.waiting import HANG, until

CONTEXT = CONTEXTS[9]


@pytest.fixture
def stores() -> Iterator[list[BruteForceRetriever]]:
    found = [BruteForceRetriever(DOCUMENTS, VOCABULARY) for _ in range(3)]
    yield found
    for each in found:
        each.gate.set()


@pytest.fixture(autouse=True)
def quick_upkeep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("suffolk.serving.clients.fanout.servers.UPKEEP_SECONDS", 0.1)


@pytest.fixture
def servers(stores: list[BruteForceRetriever]) -> Iterator[list[DraftServer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(serving({"code": each}, http=None)) for each in stores]


def address(servers: list[DraftServer], options: str = "") -> str:
    return f"grpc://{','.join(str(each.listening[0]) for each in servers)}/code{options}"


def topology(servers: list[DraftServer], zones: str = "") -> Topology:
    return Topology(
        shards=(
            Shard(
                replicas=tuple(
                    ReplicaAddress(url=f"grpc://{each.listening[0]}/code", zone=zones[at : at + 1])
                    for at, each in enumerate(servers)
                )
            ),
        )
    )


@pytest.fixture
def equal_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas are called equally often, however fast they answer."""
    monkeypatch.setattr("suffolk.serving.clients.fanout.replica_client.ReplicaClient.load", lambda replica: 0.0)


def test_they_answer_as_one_server(servers: list[DraftServer]) -> None:
    with connected(servers[0], "code") as one, opened(address(servers), HANG) as several:
        assert isinstance(several, AsyncRetriever)
        assert (several.names, several.vocab_size, several.has_groups) == (("code",), VOCABULARY, False)
        assert several.lookup_batch(CONTEXTS) == one.lookup_batch(CONTEXTS)
        for actual, expected in zip(several.draft_batch(CONTEXTS), one.draft_batch(CONTEXTS), strict=True):
            assert_same_tree(actual, expected)
        assert several.tokenizer() is None
        assert several.info()["tokens"] == one.info()["tokens"]
        assert [each["generation"] for each in several.info()["servers"].values()] == [7, 7, 7]
        assert_same_tree(several.select(["code"]).draft(CONTEXT), one.draft(CONTEXT))
        with pytest.raises(InvalidArgument, match="none of its datastores is in wiki"):
            several.select(["wiki"])
        with pytest.raises(InvalidArgument, match="max_nodes has 1 entries for 2 contexts"):
            several.draft_batch([CONTEXT, CONTEXT], max_nodes=[3])
    with pytest.raises(Unavailable):
        several.lookup(CONTEXT)


def test_calls_are_shared(servers: list[DraftServer]) -> None:
    with opened(address(servers), HANG) as store:
        for _ in range(60):
            store.lookup(CONTEXT)
        assert sum(calls(store)) >= 60
        assert min(calls(store)) > 0


def test_a_late_call_goes_to_a_second_replica(
    stores: list[BruteForceRetriever], servers: list[DraftServer], equal_loads: None
) -> None:
    with opened(address(servers[:2]), HANG) as store:
        for _ in range(64):  # enough to know what is late
            store.lookup(CONTEXT)
        expected = store.draft(CONTEXT)
        stores[0].gate.clear()  # it hangs from now on
        for _ in range(20):
            assert_same_tree(store.draft(CONTEXT), expected)
        late, other = replicas(store)
        assert other.hedges > 0
        assert late.errors > 0
        assert other.errors < late.errors  # on a busy machine, it is late at times, too
        stores[0].gate.set()


def test_hedges_have_a_budget(stores: list[BruteForceRetriever], servers: list[DraftServer]) -> None:
    with opened(address(servers[:2]), HANG) as store:
        for _ in range(64):
            store.lookup(CONTEXT)
        budget = store.servers.shards[0].budget
        budget.take(HEDGE_BURST, 0)
        before = [replica.hedges for replica in replicas(store)]
        for each in stores:
            each.gate.clear()
        store.deadline = 0.05
        with pytest.raises(DeadlineExceeded, match="no answer within 50"):
            store.lookup(CONTEXT)
        assert [replica.hedges for replica in replicas(store)] == before
        for each in stores:
            each.gate.set()
        for _ in range(10 * int(HEDGE_BURST / HEDGE_SHARE)):
            budget.add(HEDGE_SHARE)
        assert [budget.take(1) for _ in range(int(HEDGE_BURST) + 1)] == [0.0] * int(HEDGE_BURST) + [math.inf]


def test_a_failing_replica_is_ejected_and_returns(
    stores: list[BruteForceRetriever],
    servers: list[DraftServer],
    monkeypatch: pytest.MonkeyPatch,
    equal_loads: None,
) -> None:
    monkeypatch.setattr("suffolk.serving.clients.fanout.servers.UPKEEP_SECONDS", HANG)  # the test calls it
    stores[0].fault = Internal("broken")
    with opened(address(servers[:2]), HANG) as store:
        first, second = replicas(store)
        for _ in range(64):
            store.lookup(CONTEXT)  # none fails
        assert (first.is_up, first.ejections, second.is_up) == (False, 1, True)
        assert first.errors == 3
        stores[0].fault = None
        store.servers.upkeep()
        assert first.is_up
        assert first.ejections == 1


def test_no_server_is_up(stores: list[BruteForceRetriever], servers: list[DraftServer]) -> None:
    for each in stores:
        each.fault = ResourceExhausted("busy")
    with opened(address(servers), HANG) as store:
        drafter = DatastoreDrafter(store, VOCABULARY, prefetch=False)
        for _ in range(20):
            assert drafted(drafter, CONTEXT) == 0  # no draft, and no error
        assert drafter.stats()["failed Unavailable"] > 0
        assert not store.healthy
        for each in stores:
            each.fault = None
        until(lambda: drafted(drafter, CONTEXT) > 0)  # probes bring them back


def test_the_own_zone_is_preferred(servers: list[DraftServer], tmp_path: Path) -> None:
    file = tmp_path / "code.json"
    write_topology(topology(servers, "aab"), file)
    with opened(f"{file}?zone=b", HANG) as store:
        for _ in range(30):
            store.lookup(CONTEXT)
        assert calls(store)[2] >= 30
        servers[2].stop()
        until(lambda: bool(store.lookup(CONTEXT)) and not replicas(store)[2].is_up)
        assert sum(calls(store)[:2]) > 0


def test_a_changed_file_moves_calls(servers: list[DraftServer], tmp_path: Path) -> None:
    file = tmp_path / "code.json"
    write_topology(topology(servers[:1]), file)
    with opened(str(file), HANG) as store:
        kept = replicas(store)[0]
        file.write_text("{")  # it is not used
        store.servers.upkeep()
        assert replicas(store) == [kept]
        write_topology(topology(servers), file)
        until(lambda: len(replicas(store)) == 3)
        assert replicas(store)[0] is kept
        write_topology(topology(servers[1:]), file)
        until(lambda: len(replicas(store)) == 2)
        servers[0].stop()
        for _ in range(30):
            store.lookup(CONTEXT)
        assert not any(replica.errors for replica in replicas(store))


def test_a_changed_file_ends_no_call(
    stores: list[BruteForceRetriever], servers: list[DraftServer], tmp_path: Path
) -> None:
    file = tmp_path / "code.json"
    write_topology(topology(servers[:1]), file)
    with opened(str(file), HANG) as store:
        stores[0].gate.clear()
        late = store.draft_batch_future(ContextQuery([CONTEXT]))
        assert stores[0].entered.wait(HANG)
        write_topology(topology(servers[1:]), file)
        for _ in range(3):
            store.servers.upkeep()
        assert len(replicas(store)) == 2
        stores[0].gate.set()
        assert_same_tree(late.result(HANG)[0], store.draft(CONTEXT))


def test_servers_that_are_gone_are_disconnected(
    servers: list[DraftServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("suffolk.serving.clients.fanout.servers.TOKENIZER_DEADLINE", 0.1)
    file = tmp_path / "code.json"
    write_topology(topology(servers[:1]), file)
    with opened(str(file), 0.1) as store:
        gone = replicas(store)[0].remote
        write_topology(topology(servers[1:]), file)

        def is_closed() -> bool:
            try:
                gone.info()
            except Unavailable as error:
                return "was closed" in str(error)
            return False

        until(is_closed)


def test_servers_with_another_vocabulary_are_refused(servers: list[DraftServer], tmp_path: Path) -> None:
    odd = BruteForceRetriever(DOCUMENTS, VOCABULARY + 1)
    with serving({"code": odd}, http=None) as other:
        expected = r"has another vocabulary \(41\) than grpc://.* \(40\); serve the same datastore on both"
        with pytest.raises(InvalidArgument, match=expected):
            suffolk.open(address([servers[0], other]))
        file = tmp_path / "code.json"
        write_topology(topology(servers[:1]), file)
        with opened(str(file), HANG) as store:
            write_topology(topology([servers[0], other]), file)
            until(lambda: len(replicas(store)) == 2)
            assert "has another vocabulary" in replicas(store)[1].problem
            for _ in range(30):
                store.lookup(CONTEXT)
            assert calls(store)[1] == 0
            servers[0].stop()
            with pytest.raises(Unavailable):  # the other server would answer
                store.info()


def test_generations_may_differ_and_tokenizers_may_not(tmp_path: Path) -> None:
    made = [
        make_store(tmp_path / name, [DOCUMENTS], vocab_size=VOCABULARY, tokenizer=mark * 64)
        for name, mark in (("a", "1"), ("b", "1"), ("c", "2"))
    ]
    with ExitStack() as stack:
        a, b, c = (stack.enter_context(serving({"code": each}, http=None)) for each in made)
        with opened(address([a, b]), HANG) as store:
            assert store.lookup(CONTEXT) == made[0].lookup(CONTEXT)
        with pytest.raises(InvalidArgument, match=r"has another tokenizer \(222222222222\) than"):
            suffolk.open(address([a, c]))


def test_a_server_may_be_missing_at_first(servers: list[DraftServer]) -> None:
    servers[1].stop()
    with opened(address(servers[:2]), HANG) as store:
        assert store.lookup(CONTEXT).length
        assert [replica.is_up for replica in replicas(store)] == [True, False]
    servers[0].stop()
    with pytest.raises(Unavailable, match="nothing listens there"):
        suffolk.open(address(servers[:2]))
