"""Live stores with several shards in a cluster: placement, servers, topology files and addresses."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from suffolk.build_index.on_ray.nodes import Node
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.cluster.config import ClusterConfig, config_from
from suffolk.serving.cluster.live_copies import copies_of
from suffolk.serving.cluster.live_files import LiveFiles, find_live_files
from suffolk.serving.cluster.published_topology import FILE, topologies_of
from suffolk.serving.cluster.server_spec import wanted_servers
from suffolk.serving.cluster.shard_placement import with_shards
from suffolk.serving.engine.checked_fields import from_json

A, B, C, D = (Node(name, name, f"10.0.0.{number}") for number, name in enumerate("abcd", 1))
ALL = dict.fromkeys((A, B, C), LiveFiles())
CHAT = {"tokenizer": "/models/qwen", "shards": 2}


def config(remember: str = "/memory", **live: Any) -> ClusterConfig:
    stores = {"port": 7700, "live": live or {"chat": CHAT}, "datastores": {"code": "/code"}}
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


def test_too_few_nodes_are_refused() -> None:
    with pytest.raises(
        InvalidArgument, match=r"copies of live store chat is 2, and there are 1 nodes for shard 0-of-2"
    ):
        with_shards(config(), {A: LiveFiles()}, {})


def test_each_copy_of_a_shard_has_a_server() -> None:
    placed = with_shards(config(), {A: LiveFiles(), B: LiveFiles()}, {})
    servers = wanted_servers(placed, [A, B])
    assert [*servers] == ["store-a", "store-b", "chat@0-a", "chat@0-b", "chat@1-b", "chat@1-a", "worker-0"]
    server = servers["chat@1-a"]
    assert (server.kind, server.node, server.port, server.shard) == ("store", "a", 7704, "1-of-2")
    live = ["--live=chat=/f/a/live/chat@1-of-2", "--live-tokenizer=/models/qwen", "--copies=2"]
    assert [*server.words] == ["serve", *live, "--peer=grpc://10.0.0.2:7704/"]
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
