"""The settings of a cluster: bounds, unknown keys, and the servers that follow from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from suffolk.build_index.on_ray.nodes import RayNode
from suffolk.cli.cluster import EXAMPLES, ClusterUp
from suffolk.datastore.errors import InvalidArgument, NotFound
from suffolk.serving.cluster.config import config_from, read_config
from suffolk.serving.cluster.published_topology import FILE, topologies_of
from suffolk.serving.cluster.server_spec import check_stores, wanted_servers

NODES = [RayNode("2", "b", "10.0.0.2"), RayNode("1", "a", "10.0.0.1")]


def values(**changes: Any) -> dict[str, Any]:
    given = {
        "name": "demo",
        "folder": "/tmp/demo",
        "stores": {"datastores": {"code": "/data/code"}},
        "workers": {"model": "/models/tiny"},
    }
    return given | changes


@pytest.mark.parametrize("text", [EXAMPLES, ClusterUp.EXAMPLES])
def test_the_examples_of_the_help_can_be_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(text.partition("cluster.yaml:\n")[2])
    config = read_config(path)
    assert (config.name, config.workers.count) == ("code", 2)
    assert config.front is not None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"workerz": {}}, "x: unknown key 'workerz' (did you mean workers?)"),
        ({"front": {"prot": 1}}, "x: front: unknown key 'prot' (did you mean port?)"),
        ({"front": {"host": "0.0.0.0"}}, "host of front: 0.0.0.0:8000 would answer every machine that can reach it"),
        ({"front": {"port": 70_000}}, "port of front is 70000; it must be between 1 and 65535"),
        ({"workers": {"model": "/m", "count": -1}}, "count of workers is -1; it must be between 0 and 1024"),
        (
            {"workers": {"model": "/m", "options": {"listen": "x"}}},
            "options of workers has 'listen', which the cluster",
        ),
        ({"workers": {"model": "/m", "options": {"slots": {}}}}, "options of workers: slots is {}; it must be a value"),
        (
            {"workers": {"model": "/m", "options": {"tls-cert": "/c", "tls_client_ca": "/a"}}, "front": {}},
            "options of workers has tls_client_ca, and a front, whose certificate would stand for all of its callers",
        ),
        (
            {"workers": {"model": "/m", "client": {"ca": "/a"}}},
            "client of workers has ca, and options of workers no tls_cert",
        ),
        (
            {"workers": {"model": "/m", "client": {"token_file": "t"}}},
            "token_file of client of workers is 't'; it must be an absolute path",
        ),
        ({"stores": {"datastores": {"s": "/s"}, "count": 65}}, "count of stores is 65; it must be between 0 and 64"),
        ({"stores": {"datastores": {}}}, "datastores of stores is {}; name at least one"),
        ({"stores": {"datastores": {"code": "data/code"}}}, "code is 'data/code'; give an absolute path or a URL"),
        ({"name": "Demo"}, "name is 'Demo'; it must be"),
        ({"folder": "demo"}, "folder is 'demo'; it must be an absolute path"),
        ({"grace": 601.0}, "grace is 601.0; it must be between 0 and 600"),
    ],
)
def test_bad_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        config_from(values(**changes), "x")
    assert message in str(caught.value)


@pytest.mark.parametrize("options", [{"insecure": True}, {"access": "/etc/access.json"}])
def test_a_front_for_other_machines_needs_a_decision(options: dict[str, Any]) -> None:
    config = config_from(values(front={"host": "0.0.0.0"}, workers={"model": "/m", "options": options}), "x")
    assert config.front is not None


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="No such file"):
        read_config(tmp_path / "cluster.yaml")
    for content, message in (
        (b"name: [", "no YAML"),
        (b"\xff\xfe", "no YAML .'utf-8' codec can't decode"),
        (b"name: 2020-99-99", "no YAML .month must be"),
        (b"[" * 5000, "no YAML"),
        (b"", "has no name; it needs name, folder"),
        (b"demo", "must be an object"),
    ):
        (tmp_path / "cluster.yaml").write_bytes(content)
        with pytest.raises(InvalidArgument, match=message):
            read_config(tmp_path / "cluster.yaml")


def test_the_file_may_be_toml(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(
        """
        name = "demo"
        folder = "/tmp/demo"
        stores.datastores.code = "/data/code"
        [workers]
        model = "/models/tiny"
        options = { slots = 2, drafter = ["hybrid"] }
        [front]
        port = 8000
        """
    )
    workers = {"model": "/models/tiny", "options": {"slots": 2, "drafter": ["hybrid"]}}
    assert read_config(path) == config_from(values(workers=workers, front={"port": 8000}), "x")
    path.write_text("name: demo")
    with pytest.raises(InvalidArgument, match="cluster.toml: no TOML"):
        read_config(path)


def test_each_node_has_a_store_and_workers_have_ports_of_their_own() -> None:
    config = config_from(values(workers={"model": "/m", "count": 2, "port": 7710, "options": {"seed": True}}), "x")
    servers = wanted_servers(config, NODES)
    assert [*servers] == ["store-a", "store-b", "worker-0", "worker-1"]
    assert [each.port for each in servers.values()] == [0, 0, 7710, 7712]
    assert servers["store-a"].node == "1"
    assert "--set=seed=true" in servers["worker-0"].words
    few = config_from(values(stores={"datastores": {"code": "s3://b/code"}, "count": 1}), "x")
    assert [*wanted_servers(few, NODES)] == ["store-a", "worker-0"]


def test_servers_listen_on_the_address_of_their_node() -> None:
    store, _ = wanted_servers(config_from(values(), "x"), [RayNode("1", "a", "fd00::1")]).values()
    words = store.command(RayNode("1", "a", "fd00::1"), Path("/f"))
    assert words[words.index("--listen") + 1] == words[words.index("--http") + 1] == "[fd00::1]:0"


def test_no_more_stores_run_than_their_list_can_hold() -> None:
    config = config_from(values(), "x")
    nodes = [RayNode(str(each), f"n{each:02}", f"10.0.0.{each}") for each in range(65)]
    check_stores(config.stores, nodes[:64])
    with pytest.raises(InvalidArgument, match="count of stores is 0, one on each of 65 nodes; it may be at most 64"):
        check_stores(config.stores, nodes)
    stores = [each for each in wanted_servers(config, nodes).values() if each.kind == "store"]  # if they join later
    addresses = {each.name: f"{each.name}:1" for each in stores}
    assert len(topologies_of(addresses, config.stores)[FILE].addresses) == 64
