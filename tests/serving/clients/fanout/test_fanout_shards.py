"""Shards: real datastores that were split, weights, occurrences, and a shard that does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from suffolk.build_index.split import split
from suffolk.datastore.datastore import Datastore, open_datastore
from suffolk.datastore.errors import SuffolkError
from suffolk.datastore.merged import MergedDatastore
from suffolk.serving.clients.fanout.datastore import FanoutDatastore
from suffolk.serving.decoding.drafters.retrieval.datastore import DatastoreDrafter
from suffolk.serving.store.draft_service.server import DraftServer
from suffolk.serving.worker.metrics import FanoutMetrics
from tests.support.brute_force import BruteForceRetriever, assert_same_tree
from tests.support.draft_server import CONTEXTS, DOCUMENTS, VOCABULARY, drafted, serving
from tests.support.fanout import opened, replicas
from tests.support.stores import make_store
from tests.support.waiting import HANG, until

RANDOM = np.random.default_rng(7)
TEXT = [RANDOM.zipf(1.3, 3000).clip(1, VOCABULARY) - 1 for _ in range(9)]
SEGMENTS = [[document.astype(int).tolist() for document in TEXT[at : at + 3]] for at in (0, 3, 6)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Datastore]:
    with make_store(tmp_path_factory.mktemp("whole") / "code", SEGMENTS, vocab_size=VOCABULARY) as store:
        yield store


@pytest.fixture(scope="module")
def shards(whole: Datastore) -> Iterator[list[Datastore]]:
    reports = split(whole.path, whole.path.parent / "shards", 3)
    with ExitStack() as stack:
        yield [stack.enter_context(open_datastore(report.path)) for report in reports]


@pytest.fixture
def servers(shards: list[Datastore]) -> Iterator[list[DraftServer]]:
    wiki = BruteForceRetriever(DOCUMENTS, VOCABULARY)
    with ExitStack() as stack:
        yield [stack.enter_context(serving({"code": each, "wiki": wiki}, http=None)) for each in shards]


@pytest.fixture
def sharded(servers: list[DraftServer]) -> Iterator[FanoutDatastore]:
    with opened(address(servers), HANG) as store:
        yield store


def address(servers: list[DraftServer], name: str = "code") -> str:
    return f"grpc://{'+'.join(str(each.listening[0]) for each in servers)}/{name}"


@pytest.mark.parametrize("max_nodes", [1, 5, 64, 300])
@pytest.mark.parametrize("max_match", [1, 2, 16])
def test_large_counts_are_exact(sharded: FanoutDatastore, whole: Datastore, max_match: int, max_nodes: int) -> None:
    contexts = [segment[0][:5] for segment in SEGMENTS] + CONTEXTS[:8]
    assert sharded.lookup_batch(contexts, max_match) == whole.lookup_batch(contexts, max_match)
    found = sharded.draft_batch(contexts, max_match, max_nodes=max_nodes)
    for actual, expected in zip(found, whole.draft_batch(contexts, max_match, max_nodes=max_nodes), strict=True):
        assert_same_tree(actual, expected)
        assert not actual.partial
    assert sharded.servers.partial == {"shard": 0, "unproven": 0}
    assert not any(replica.errors for replica in replicas(sharded))


def test_what_they_hold_adds_up(sharded: FanoutDatastore, whole: Datastore) -> None:
    info = sharded.info()
    assert (info["tokens"], info["documents"]) == (whole.info()["tokens"], 9)
    assert [each["shard"] for each in info["servers"].values()] == [0, 1, 2]
    assert set(info["shards"]) == {"shard 0", "shard 1", "shard 2"}
    pattern = SEGMENTS[1][0][:3]
    count = whole.lookup(pattern, 3, 3).count
    places = sharded.occurrences(pattern, limit=20)
    assert len(places) == min(20, count)
    assert len({(place.segment, place.document, place.offset) for place in places}) == len(places)
    assert {tuple(place.tokens[:3].tolist()) for place in places} == {tuple(pattern)}


def test_weighted_datastores_are_split_too(tmp_path: Path, whole: Datastore, shards: list[Datastore]) -> None:
    parts = [
        make_store(tmp_path / f"wiki{at}", [DOCUMENTS[2 * at : 2 * at + 2]], vocab_size=VOCABULARY) for at in range(3)
    ]
    wiki = make_store(tmp_path / "wiki", [DOCUMENTS], vocab_size=VOCABULARY)
    every = MergedDatastore({"code": whole, "wiki": wiki}, [2, 3])
    with ExitStack() as stack:
        servers = [
            stack.enter_context(serving({"code": code, "wiki": part}, http=None))
            for code, part in zip(shards, parts, strict=True)
        ]
        store = stack.enter_context(opened(address(servers, "code:2,wiki:3"), HANG))
        assert store.names == ("code", "wiki")
        for actual, expected in zip(store.draft_batch(CONTEXTS), every.draft_batch(CONTEXTS), strict=True):
            assert_same_tree(actual, expected)
        assert_same_tree(store.select(["wiki"]).draft(CONTEXTS[9]), wiki.draft(CONTEXTS[9]))


def test_without_a_shard_answers_are_partial(
    sharded: FanoutDatastore, servers: list[DraftServer], shards: list[Datastore]
) -> None:
    servers[1].stop()
    context = SEGMENTS[1][0][:3]
    left = MergedDatastore({"0": shards[0], "2": shards[2]})
    match = sharded.lookup(context, 2)
    assert (match, match.partial) == (left.lookup(context, 2), True)
    tree = sharded.draft(context, 2)
    assert_same_tree(tree, left.draft(context, 2))
    assert tree.partial
    assert tree.head(3).partial
    until(lambda: sharded.lookup(context).partial and not replicas(sharded)[1].is_up)
    assert not sharded.healthy
    assert drafted(DatastoreDrafter(sharded, VOCABULARY, prefetch=False), context) > 0
    metrics = {
        sample.name: sample.value
        for family in FanoutMetrics([sharded]).collect()
        for sample in family.samples
        if sample.labels.get("reason") == "shard"
    }
    assert metrics["suffolk_partial_answers_total"] >= 3
    assert sharded.info()["documents"] == 6
    for server in servers:
        server.stop()
    with pytest.raises(SuffolkError):
        sharded.lookup(context)


def test_answers_of_shards_that_hide_text_are_partial() -> None:
    parts = [BruteForceRetriever(DOCUMENTS[at::2], VOCABULARY) for at in (0, 1)]
    with ExitStack() as stack:
        servers = [stack.enter_context(serving({"code": each}, http=None, min_count=2)) for each in parts]
        with opened(address(servers), HANG) as store:
            matches, trees = store.lookup_batch(CONTEXTS), store.draft_batch(CONTEXTS, 1, max_nodes=4)
            assert all(answer.partial for answer in [*matches, *trees])
        with opened(address(servers).replace("+", ","), HANG) as copies:
            assert not copies.draft(CONTEXTS[9]).partial
            assert copies.info()["min_count"] == 2


def test_a_shard_that_fails_in_a_later_round_leaves_a_partial_draft(
    sharded: FanoutDatastore, servers: list[DraftServer], whole: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> list[int]:
        raise RuntimeError("broken")

    for server in servers:
        monkeypatch.setattr(server.service, "count", fail)
    context = SEGMENTS[0][0][:3]
    tree = sharded.draft(context, 1, max_nodes=300)
    assert tree.partial
    assert sharded.servers.partial["unproven"] == 1
    assert tree.counts is not None
    tree.validate(VOCABULARY)
    every = whole.draft(context, 1, max_nodes=300)
    assert every.counts is not None
    assert (tree.counts <= every.counts).all()
