"""Several datastores of one server: searched as one, in one call."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import suffolk
from suffolk.build_index.compact import compact
from suffolk.datastore.datastore import Datastore
from suffolk.datastore.errors import InvalidArgument, NotFound, SuffolkError, Unsupported
from suffolk.datastore.merged import MergedDatastore
from suffolk.datastore.watched_datastore import WatchedDatastore
from suffolk.serving.decoding.drafters.retrieval.datastore import DatastoreDrafter
from suffolk.serving.decoding.drafters.retrieval.limits import Limits
from suffolk.serving.decoding.engine.loop.draft_options import DraftOptions
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest
from suffolk.serving.integrations.core import DraftCore
from suffolk.serving.integrations.options import IntegrationOptions
from suffolk.serving.integrations.running_requests import Context
from suffolk.serving.store.draft_service.server import DraftServer
from tests.support.brute_force import BruteForceRetriever, assert_same_tree
from tests.support.draft_server import CONTEXTS, DOCUMENTS, VOCABULARY, serving
from tests.support.http_requests import ask
from tests.support.stores import make_store

SLOW = "?deadline_ms=60000"
LIMITS = Limits(max_match=8, max_depth=4)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Datastore]]:
    folder = tmp_path_factory.mktemp("stores")
    with (
        make_store(folder / "code", [DOCUMENTS[:3]], vocab_size=VOCABULARY) as code,
        make_store(folder / "wiki", [DOCUMENTS[3:]], vocab_size=VOCABULARY) as wiki,
    ):
        yield {"code": code, "wiki": wiki}


@pytest.fixture(scope="module")
def server(stores: dict[str, Datastore]) -> Iterator[DraftServer]:
    with serving({**stores, "ids": BruteForceRetriever([[1]], VOCABULARY)}) as server:
        yield server


def calls(server: DraftServer) -> int:
    text = server.service.metrics.exposition().decode()
    counter = 'suffolk_requests_total{code="OK",method="Draft"'
    return sum(int(float(line.split()[-1])) for line in text.splitlines() if line.startswith(counter))


@pytest.mark.parametrize(
    ("names", "weights"), [("code,wiki", [1, 1]), ("code:3,wiki", [3, 1]), ("wiki:2,code:6", [1, 3])]
)
def test_a_url_names_several(names: str, weights: list[int], stores: dict[str, Datastore], server: DraftServer) -> None:
    order = [each.split(":")[0] for each in names.split(",")]
    local = MergedDatastore({name: stores[name] for name in order}, weights)
    with suffolk.open(f"grpc://{server.listening[0]}/{names}{SLOW}") as remote:
        assert (remote.name, remote.names) == (",".join(order), tuple(order))
        assert remote.lookup_batch(CONTEXTS, 8) == local.lookup_batch(CONTEXTS, 8)
        for actual, expected in zip(remote.draft_batch(CONTEXTS), local.draft_batch(CONTEXTS), strict=True):
            assert_same_tree(actual, expected)
        info = remote.info()
        assert info["tokens"] == sum(map(len, DOCUMENTS))
        assert set(info["datastores"]) == set(order)
        alone = remote.select(["wiki"])
        assert_same_tree(alone.draft(CONTEXTS[9]), stores["wiki"].draft(CONTEXTS[9]))
        with pytest.raises(InvalidArgument, match="none of its datastores is in maps"):
            remote.select(["maps"])


def test_http_names_several(stores: dict[str, Datastore], server: DraftServer) -> None:
    body = {"contexts": [CONTEXTS[9]], "datastores": [{"name": "code", "weight": 3}, {"name": "wiki"}]}
    status, _, reply = ask(server, "POST", "/v1/draft", body)
    expected = MergedDatastore(stores, [3, 1]).draft(CONTEXTS[9])
    assert (status, reply["trees"][0]["counts"]) == (200, expected.counts.tolist())  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("names", "error", "text"),
    [
        ("code,maps", NotFound, "there is no 'maps'"),
        ("code,code", InvalidArgument, "'code' is named twice; name each datastore once"),
        ("code,default/code", InvalidArgument, "'code' is named twice"),
        ("code,a/b/c", InvalidArgument, "malformed URL"),
        ("code,", InvalidArgument, "a name is empty"),
        ("code:0,wiki", InvalidArgument, "weight is 0; it must be between 1 and 16"),
        ("code:x,wiki", InvalidArgument, "weight 'x' is not a whole number; write NAME:WEIGHT,NAME"),
        (",".join(f"n{number}" for number in range(17)), InvalidArgument, "17 datastores; a query searches 1 to 16"),
    ],
)
def test_names_that_cannot_be_searched(names: str, error: type[SuffolkError], text: str, server: DraftServer) -> None:
    with pytest.raises(error) as caught:
        suffolk.open(f"grpc://{server.listening[0]}/{names}")
    assert text in str(caught.value)


def test_datastores_that_do_not_fit(server: DraftServer, tmp_path: Path) -> None:
    with suffolk.open(f"grpc://{server.listening[0]}/code,ids{SLOW}") as remote, pytest.raises(Unsupported) as caught:
        remote.lookup([1])
    assert "datastore ids can only be searched alone; leave the others out" in str(caught.value)
    other = make_store(tmp_path / "other", [[[1]]], vocab_size=VOCABULARY + 1)
    with other, serving({"code": make_store(tmp_path / "code", [[[1]]], vocab_size=VOCABULARY), "other": other}) as odd:
        with pytest.raises(InvalidArgument, match=r"code, other have different vocabulary \(40, 41\); search them in"):
            suffolk.open(f"grpc://{odd.listening[0]}/code,other")
        request = {"contexts": [], "datastores": [{"name": "code"}, {"name": "other"}]}
        assert "different vocabulary" in ask(odd, "POST", "/v1/lookup", request)[2]["error"]["message"]


def test_a_drafter_searches_all_in_one_call(stores: dict[str, Datastore], server: DraftServer) -> None:
    texts = [np.asarray(document[:40], np.int32) for document in DOCUMENTS]
    chosen = [None, ("wiki",), ("code", "wiki"), ("maps",), None, ("wiki",)]
    requests = [
        DraftRequest(number, text, 16, options=DraftOptions(datastores=names))
        for number, (text, names) in enumerate(zip(texts, chosen, strict=True))
    ]
    with suffolk.open(f"grpc://{server.listening[0]}/code,wiki{SLOW}") as remote:
        drafter = DatastoreDrafter(remote, VOCABULARY, LIMITS, prefetch=False)
        assert drafter.datastores == ("code", "wiki")
        before = calls(server)
        found = drafter.draft(requests)
        assert calls(server) == before + 2  # one for requests that search both, one for those that search wiki
        before = calls(server)
        drafter.draft([requests[0], requests[4]])
        assert calls(server) == before + 1
    both, wiki = (DatastoreDrafter(store, VOCABULARY, LIMITS) for store in (MergedDatastore(stores), stores["wiki"]))
    assert found[3] == []
    for place, local in ((0, both), (1, wiki), (2, both), (5, wiki)):
        [expected] = local.draft([DraftRequest(place, texts[place], 16)])
        assert [tree.tokens.tolist() for tree in found[place]] == [tree.tokens.tolist() for tree in expected]


def test_a_host_asks_a_server_once_a_step(server: DraftServer) -> None:
    urls = tuple(f"grpc://{server.listening[0]}/{name}{SLOW}" for name in ("code", "wiki"))
    core = DraftCore(IntegrationOptions(datastores=urls, prompt_lookup=False), VOCABULARY, "a model")
    before = calls(server)
    contexts = [Context(np.asarray(DOCUMENTS[number][:40], np.int32), number) for number in range(3)]
    core.draft_trees(contexts, 8)
    assert calls(server) == before + 1
    assert core.stats()["failed"] == 0
    core.close()


def test_a_replaced_generation_is_released(tmp_path: Path) -> None:
    """Regression: what searches several datastores kept the files of old generations open, with their deleted text."""
    make_store(tmp_path / "b", [[[1, 2]]], vocab_size=VOCABULARY).close()
    make_store(tmp_path / "a", [[[1, 2, 3]], [[1, 2, 4]]], vocab_size=VOCABULARY).close()
    with WatchedDatastore(tmp_path / "a") as store, suffolk.open(tmp_path / "b") as other:
        both = MergedDatastore({"a": store, "b": other})
        assert both.lookup([1, 2]).count == 3
        old = weakref.ref(store.native())
        compact(tmp_path / "a")
        while not store.refresh():
            pass
        assert old() is None
        assert "(deleted)" not in [
            line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if str(tmp_path) in line
        ]
        assert both.lookup([1, 2]).count == 3
