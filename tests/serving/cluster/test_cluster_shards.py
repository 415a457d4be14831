"""Datastores with several shards in a cluster: placement, servers, topology files and addresses."""

from __future__ import annotations

import json
import os
import signal
import socket
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from suffolk.build_index.on_ray.nodes import RayNode
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.settings import from_json
from suffolk.serving.clients.fanout.datastore import FanoutDatastore
from suffolk.serving.cluster.config import ClusterConfig, config_from
from suffolk.serving.cluster.copies import copies_of, with_shards
from suffolk.serving.cluster.node import LiveFiles, find_live_files
from suffolk.serving.cluster.published_topology import FILE, PublishedTopology, TopologyWriter, topologies_of
from suffolk.serving.cluster.server_actor import ServerProcess
from suffolk.serving.cluster.server_spec import wanted_servers
from tests.support.stores import make_store
from tests.support.waiting import HANG

A, B, C, D = (RayNode(name, name, f"10.0.0.{number}") for number, name in enumerate("abcd", 1))
ALL = dict.fromkeys((A, B, C), LiveFiles())
CHAT = {"tokenizer": "/models/qwen", "shards": 2}


def config(remember: str = "/memory", **live: Any) -> ClusterConfig:
    stores = {
        "port": 7700,
        "live": live or {"chat": CHAT},
        "datastores": {"code": "/code"},
        "register": "file:///shared/register",
    }
    workers = {"model": "/m", "options": {"remember": remember}}
    return config_from({"name": "demo", "folder": "/f", "stores": stores, "workers": workers}, "x")


def files(*keys: str, documents: bool = True) -> LiveFiles:
    return LiveFiles(frozenset(keys), frozenset(keys) if documents else frozenset())


@pytest.mark.parametrize(
    ("live", "message"),
    [
        ({"shards": 65}, "shards of a live store is 65; it must be between 1 and 64"),
        ({"shards": 1, "spare": 0}, "spare of a live store is 0, and shards is 1, with a copy on each store server"),
        ({"copies": 1, "spare": 0}, "copies of a live store is 1 and spare is 0; a shard has at least two copies"),
    ],
)
def test_bad_settings_are_refused(live: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        config(chat=CHAT | live)
    assert message in str(caught.value)
    with pytest.raises(InvalidArgument, match="chat, log have 66 shards; at most 64 in all"):
        config(chat=CHAT | {"shards": 33}, log=CHAT | {"shards": 33})


def test_copies_and_first_leaders_are_spread_over_the_nodes() -> None:
    placed = with_shards(config(chat=CHAT | {"spare": 0, "shards": 3}), ALL, {}).stores.shards_at
    assert [[*each] for each in placed.values()] == [["a", "b"], ["c", "b"], ["a", "c"]]
    addresses = [address for each in placed.values() for address in each.values()]
    assert len({*addresses}) == 6
    assert placed["chat@0-of-3"] == {"a": "10.0.0.1:7702", "b": "10.0.0.2:7702"}
    whole = with_shards(config(), ALL, {}).stores.shards_at
    assert [[*each] for each in whole.values()] == [["a", "b", "c"], ["b", "c", "a"]]


def test_a_shard_keeps_its_copies_while_nodes_come_and_go() -> None:
    first = with_shards(config(chat=CHAT | {"spare": 0}), ALL, {})
    later = with_shards(first, dict.fromkeys((B, D), LiveFiles()), first.stores.shards_at)
    assert later.stores.shards_at == first.stores.shards_at
    assert [*wanted_servers(later, [B, D])] == ["store-b", "store-d", "chat@0-b", "chat@1-b", "worker-0"]


def test_a_new_node_gets_the_copies_that_are_missing() -> None:
    few = with_shards(config(), dict.fromkeys((A, B), LiveFiles()), {})
    more = with_shards(config(), ALL, few.stores.shards_at)
    assert [[*each] for each in more.stores.shards_at.values()] == [["a", "b", "c"], ["b", "a", "c"]]
    for key, copies in few.stores.shards_at.items():
        assert copies.items() <= more.stores.shards_at[key].items()


def test_a_cluster_that_starts_again_finds_its_shards_by_their_files() -> None:
    nodes = {A: files("chat@1-of-2"), B: files(), C: files("chat@0-of-2"), D: files("chat@0-of-2", documents=False)}
    placed = with_shards(config(chat=CHAT | {"spare": 0}), nodes, {}).stores.shards_at
    assert [[*each] for each in placed.values()] == [["c", "d"], ["a", "b"]]
    again = with_shards(config(), dict.fromkeys((A, B, C), files("chat@0-of-2", "chat@1-of-2")), {}).stores.shards_at
    assert [[*each] for each in again.values()] == [
        ["a", "b", "c"],
        ["b", "c", "a"],
    ]  # first leaders as at the first start


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (files("chat@0-of-3"), "shards of live store chat is 2, and node a has documents of 3 in live/chat@0-of-3"),
        (files("chat"), "shards of live store chat is 2, and node a has documents of 1 in live/chat"),
        (files("chat@0-of-2"), "no node has files of shard 1-of-2, and a has documents of another one"),
    ],
)
def test_documents_that_would_be_missing_are_noticed(found: LiveFiles, message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        with_shards(config(), {A: found, B: LiveFiles()}, {})
    assert message in str(caught.value)


@pytest.mark.parametrize("copies", [1, 2])
def test_too_few_nodes_are_refused(copies: int) -> None:
    with pytest.raises(InvalidArgument, match=r"live store chat: shard 0-of-2 needs 2 nodes, and has a; add nodes"):
        with_shards(config(chat=CHAT | {"copies": copies}), {A: LiveFiles()}, {})


def test_each_copy_of_a_shard_has_a_server() -> None:
    placed = with_shards(config(), {A: LiveFiles(), B: LiveFiles()}, {})
    servers = wanted_servers(placed, [A, B])
    assert [*servers] == ["store-a", "store-b", "chat@0-a", "chat@0-b", "chat@1-b", "chat@1-a", "worker-0"]
    server = servers["chat@1-a"]
    assert (server.kind, server.node, server.port, server.shard) == ("store", "a", 7704, "1-of-2")
    live = ["--live=chat=/f/a/live/chat@1-of-2", "--live-tokenizer=/models/qwen", "--copies=2"]
    live += ["--register=file:///shared/register/chat@1-of-2", "--peer=grpc://10.0.0.2:7704/"]
    assert [*server.words] == ["serve", *live]
    assert "chat" not in " ".join(servers["store-a"].words)
    without = wanted_servers(placed, [B])
    assert [name for name in without if "@" in name] == ["chat@0-b", "chat@1-b"]
    assert without["chat@0-b"] == servers["chat@0-b"]  # the death of a node replaces no server
    kept = from_json(ClusterConfig, json.loads(json.dumps(asdict(placed))), "file")
    assert wanted_servers(kept, [A, B]) == servers


def test_clients_find_all_copies_of_each_shard(tmp_path: Path) -> None:
    stores = with_shards(config(), {A: LiveFiles(), B: LiveFiles()}, {}).stores
    found = topologies_of({"a": "10.0.0.1:7700"}, stores)
    assert [each.url for each in found[FILE].addresses] == ["grpc://10.0.0.1:7700/code"]
    shards = found["topology-chat.json"].shards
    assert [[each.zone for each in shard.replicas] for shard in shards] == [["a", "b"], ["a", "b"]]
    assert shards[1].replicas[0].url == "grpc://10.0.0.1:7704/chat"
    assert [*topologies_of({}, stores)] == ["topology-chat.json"]
    assert copies_of(stores) == [
        ("grpc://10.0.0.1:7702/chat", "grpc://10.0.0.2:7702/chat"),
        ("grpc://10.0.0.2:7704/chat", "grpc://10.0.0.1:7704/chat"),
    ]
    worker = wanted_servers(with_shards(config(remember="chat"), {A: LiveFiles(), B: LiveFiles()}, {}), [A])["worker-0"]
    address = "grpc://10.0.0.1:7702,10.0.0.2:7702+10.0.0.2:7704,10.0.0.1:7704/chat"
    assert f"--set=remember={address}" in worker.words
    for name in found:
        (tmp_path / name).touch()
    searched = [word for word in worker.command(A, tmp_path) if word.startswith("--datastore=")]
    assert searched == [f"--datastore={tmp_path / name}?zone=a" for name in found]


def test_a_cluster_of_shards_alone_has_no_other_store_server() -> None:
    plain = config()
    alone = replace(plain, stores=replace(plain.stores, datastores={}))
    assert [*wanted_servers(with_shards(alone, ALL, {}), [A])] == ["chat@0-a", "chat@1-a", "worker-0"]


def test_files_of_live_stores_are_found(tmp_path: Path) -> None:
    for key in ("chat@0-of-2", "chat@1-of-2", "t/log", "other"):
        (tmp_path / "live" / key / "live" / "log").mkdir(parents=True)
    (tmp_path / "live" / "chat@1-of-2" / "live" / "log" / "1.log").touch()
    (tmp_path / "live" / "empty").mkdir()
    found = find_live_files(tmp_path, ["chat", "t/log", "empty"])
    assert found == LiveFiles(frozenset({"chat@0-of-2", "chat@1-of-2", "t/log"}), frozenset({"chat@1-of-2"}))


def test_a_published_datastore_may_have_shards() -> None:
    given = {"port": 7700, "copies": 1, "datastores": {"code": ["s3://b/0", "/data/1"], "wiki": "/wiki"}}
    values = {"name": "demo", "folder": "/f", "stores": given, "workers": {"model": "/m"}}
    placed = with_shards(config_from(values, "x"), ALL, {})
    assert [[*each] for each in placed.stores.shards_at.values()] == [["a"], ["b"]]
    servers = wanted_servers(placed, [A, B])
    assert [*servers] == ["store-a", "store-b", "code@0-a", "code@1-b", "worker-0"]
    assert servers["store-a"].words == ("serve", "wiki=/wiki")
    words = servers["code@0-a"].command(A, Path("/f/a"))
    assert words[:2] == ["serve", "code=s3://b/0"]
    assert words[words.index("--cache") + 1] == "/f/a/copies/code@0-a"
    assert servers["worker-0"].topologies == (FILE, "topology-code.json")
    assert copies_of(placed.stores) == []
    without = with_shards(
        placed, dict.fromkeys((B, C), LiveFiles()), placed.stores.shards_at
    )  # it moves, unlike a live one
    assert [[*each] for each in without.stores.shards_at.values()] == [["c"], ["b"]]
    kept = from_json(ClusterConfig, json.loads(json.dumps(asdict(placed))), "file")
    assert wanted_servers(kept, [A, B]) == servers


@pytest.mark.parametrize(
    ("stores", "message"),
    [
        ({"datastores": {"code": ["/a"]}}, "code has 1 shards; list at least two, each once, or give one source"),
        ({"datastores": {"code": ["/a", "/a"]}}, "code has 2 shards; list at least two, each once"),
        ({"datastores": {"code": ["/a", "b"]}}, "code is 'b'; give an absolute path or a URL"),
        ({"datastores": {"code": ["/a", "/b"]}}, "port of stores is 0, and the shards of code need fixed ones"),
        ({"datastores": {"code": [f"/{each}" for each in range(65)]}}, "datastores of stores has more than 64 shards"),
    ],
)
def test_bad_shards_of_published_datastores_are_refused(stores: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        config_from({"name": "demo", "folder": "/f", "stores": stores, "workers": {"model": "/m"}}, "x")
    assert message in str(caught.value)


def test_shards_are_searched_as_one_store_and_partially_while_one_is_down(tmp_path: Path) -> None:
    node = RayNode("1", "a", "127.0.0.1")
    for number, text in enumerate(([1, 2, 3], [1, 2, 4])):
        make_store(tmp_path / f"s{number}", [[text * 9]], vocab_size=9).close()
    sources = [str(tmp_path / f"s{number}") for number in range(2)]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    given = {"port": port, "copies": 1, "datastores": {"code": sources}}
    values = {"name": "demo", "folder": str(tmp_path), "stores": given, "workers": {"model": "/m", "count": 0}}
    placed = with_shards(config_from(values, "x"), {node: LiveFiles()}, {})
    specs = wanted_servers(placed, [node])
    servers = [ServerProcess(spec.command(node, tmp_path), tmp_path / spec.name) for spec in specs.values()]
    try:
        addresses = [server.wait_ready(HANG) for server in servers]
        TopologyWriter().write(PublishedTopology(1, topologies_of({}, placed.stores)), tmp_path)
        with FanoutDatastore(f"{tmp_path / 'topology-code.json'}?zone=a", 5.0) as remote:
            assert remote.lookup([1, 2]) == (2, 18)
            os.kill(addresses[1].pid, signal.SIGKILL)
            found = remote.lookup([1, 2])
            assert (found, found.partial) == ((2, 9), True)
    finally:
        for server in servers:
            server.stop(0)
