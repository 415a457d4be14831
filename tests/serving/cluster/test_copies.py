"""Live stores of a cluster: their settings, and which servers have copies."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from suffolk.build_index.on_ray.nodes import RayNode
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.settings import from_json
from suffolk.serving.cluster.config import ClusterConfig, config_from
from suffolk.serving.cluster.copies import copies_of, with_copies
from suffolk.serving.cluster.server_spec import wanted_servers

A, B, C = (RayNode(name, name, f"10.0.0.{number}") for number, name in enumerate("abc", 1))
CHAT = {"tokenizer": "/models/qwen"}


def config(remember: str = "/memory", **stores: Any) -> ClusterConfig:
    given = {"port": 7700, "live": {"chat": CHAT}, "register": "s3://bucket/register/"} | stores
    workers = {"model": "/m", "options": {"remember": remember}}
    return config_from({"name": "demo", "folder": "/f", "stores": given, "workers": workers}, "x")


@pytest.mark.parametrize(
    ("stores", "message"),
    [
        ({"port": 0}, "port of stores is 0, and live stores need a fixed one"),
        ({"datastores": {"chat": "/chat"}}, "live of stores: chat is also in datastores"),
        (
            {"live": {"chat": CHAT | {"copys": 3}}},
            "x: stores: live: chat: unknown key 'copys' (did you mean copies?)",
        ),
        ({"live": {"chat": {}}}, "live: chat has no tokenizer"),
        ({"live": {"chat": CHAT | {"copies": 0}}}, "copies of a live store is 0; it must be between 1 and 16"),
        ({"live": {"chat": {"tokenizer": "qwen"}}}, "tokenizer of a live store is 'qwen'; give an absolute path"),
        (
            {"live": {"chat": CHAT, "b": CHAT | {"copies": 3}}},
            "live of stores: copies differs (chat 2, b 3); give live",
        ),
        ({"live": {"a b": CHAT}}, "live of stores: a b: 'a b' cannot name a datastore"),
        ({"live": ["chat"]}, "live of stores is ['chat']; it must be an object"),
        ({"live": {}}, "datastores of stores is {}; name at least one"),
        ({"options": {"live-tokenizer": "/m"}}, "options of stores has 'live-tokenizer', which the cluster sets"),
        ({"copies_at": {"a": "10.0.0.1:7700"}}, "x: stores: unknown key 'copies_at'"),
        ({"remember": "chatt"}, "options of workers: remember is 'chatt'; give one of live of stores (chat), or a URL"),
    ],
)
def test_bad_settings_are_refused(stores: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        config(**stores)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("datastores", "register"),
    [
        ({"a": "/a", "code": "s3://bucket/generations/code/"}, "s3://bucket/generations/register"),
        ({"code": ["gs://bucket/1", "gs://bucket/2"]}, "gs://bucket/register"),
        ({"code": "file:///shared/code"}, "file:///shared/register"),
        ({"code": "s3://bucket"}, ""),
        ({"code": "/code"}, ""),
    ],
)
def test_the_register_is_where_the_generations_are(datastores: dict[str, Any], register: str) -> None:
    assert config(register="", datastores=datastores).stores.register_url == register


def test_each_store_server_has_a_copy_and_knows_the_others() -> None:
    placed = with_copies(config(datastores={"code": "/code"}), [B, A], {})
    assert copies_of(placed.stores) == [("grpc://10.0.0.1:7700/chat", "grpc://10.0.0.2:7700/chat")]
    words = wanted_servers(placed, [A, B])["store-b"].words
    live = ["--live=chat=/f/b/live/chat", "--live-tokenizer=/models/qwen", "--copies=2"]
    live += ["--register=s3://bucket/register", "--peer=grpc://10.0.0.1:7700/"]
    assert [*words] == ["serve", "code=/code", *live]
    assert placed.stores.names == ["code", "chat"]
    secured = with_copies(config(client={"token_file": "/t"}), [B, A], {})
    assert wanted_servers(secured, [A])["store-a"].words[-1] == "--peer=grpc://10.0.0.2:7700/?token_file=/t"
    assert placed == config(datastores={"code": "/code"})  # a second ``up`` with the same file is no change
    assert (
        from_json(ClusterConfig, json.loads(json.dumps(asdict(placed))), "file").stores.copies_at
        == placed.stores.copies_at
    )


def test_bounds_of_live_stores_are_options_of_the_servers() -> None:
    placed = with_copies(config(options={"live-tokens": 50_000_000, "live_evict": "use"}), [A, B], {})
    words = wanted_servers(placed, [A, B])["store-a"].words
    assert {"--set=live_tokens=50000000", "--set=live_evict=use"} <= {*words}


def test_workers_remember_at_all_copies() -> None:
    for name, address in (("chat", "grpc://10.0.0.1:7700,10.0.0.2:7700/chat"), ("/memory", "/memory")):
        placed = with_copies(config(remember=name), [A, B], {})
        assert f"--set=remember={address}" in wanted_servers(placed, [A, B])["worker-0"].words


def test_a_node_that_is_away_keeps_its_copy_and_a_new_one_waits_for_an_update() -> None:
    first = with_copies(config(), [A, B], {})
    assert [*wanted_servers(first, [B, C])] == ["store-b", "worker-0"]
    assert wanted_servers(first, [B, C])["store-b"] == wanted_servers(first, [A, B])["store-b"]  # so it is not replaced
    later = with_copies(config(), [B, C], first.stores.copies_at)
    assert [*later.stores.copies_at] == ["a", "b", "c"]
    assert [*wanted_servers(later, [B, C])] == ["store-b", "store-c", "worker-0"]
    assert [*with_copies(config(count=2), [B, C], first.stores.copies_at).stores.copies_at] == ["a", "b"]


@pytest.mark.parametrize(
    ("stores", "nodes", "before", "message"),
    [
        ({}, [A], {}, "copies of live store chat is 2, more than store servers (a); lower it, or add nodes"),
        (
            {"count": 1, "live": {"chat": CHAT | {"copies": 1}}},
            [A],
            {"a": "", "b": ""},
            "count of stores is 1, and 2 servers have copies of",
        ),
        ({"register": ""}, [A, B], {}, "register of stores is missing, and live stores have 2 copies; give the URL of"),
        ({}, [RayNode(str(each), str(each), "h") for each in range(10)], {}, "at most 9 can: set count"),
        (
            {"live": {"chat": CHAT | {"copies": 1}}},
            [A, B],
            {"a": ""},
            "chat has no copies, because the cluster was started",
        ),
    ],
)
def test_servers_that_cannot_hold_the_copies_are_refused(
    stores: dict[str, Any], nodes: list[RayNode], before: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        with_copies(config(**stores), nodes, before)
    assert message in str(caught.value)
