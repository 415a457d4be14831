"""Tokens and certificates of a cluster's stores: what the file may say, and a real server that demands both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from suffolk.build_index.on_ray.nodes import RayNode
from suffolk.datastore.errors import InvalidArgument, PermissionDenied, SuffolkError, Unavailable
from suffolk.datastore.version import __version__
from suffolk.serving.clients.fanout.datastore import FanoutDatastore
from suffolk.serving.cluster.config import StoresConfig, config_from
from suffolk.serving.cluster.published_topology import FILE, PublishedTopology, TopologyWriter, topologies_of
from suffolk.serving.cluster.server_actor import ServerProcess, server_facts
from suffolk.serving.cluster.server_spec import wanted_servers
from suffolk.serving.net.access_file import add_token
from suffolk.serving.net.identity import Role
from tests.support.certificates import make_certificates, needs_openssl
from tests.support.stores import make_store
from tests.support.waiting import HANG

NODE = RayNode("1", "a", "127.0.0.1")
TLS = {"tls_cert": "/c", "tls_key": "/k"}


def stores(options: dict[str, Any], client: dict[str, Any], folder: str = "/s") -> StoresConfig:
    given = {"datastores": {"s": folder}, "options": options, "client": client}
    values = {"name": "demo", "folder": "/tmp/demo", "stores": given, "workers": {"model": "/m"}}
    return config_from(values, "x").stores


@pytest.mark.parametrize(
    ("options", "client", "message"),
    [
        ({"access": "/a"}, {}, "options of stores has access, and client of stores no token_file and no cert"),
        (TLS | {"tls-client-ca": "/a"}, {"token_file": "/t"}, "has tls_client_ca, and client of stores no cert"),
        ({}, {"ca": "/a"}, "client of stores has ca, and options of stores no tls_cert"),
        (TLS, {"cert": "/c"}, "cert and key of client of stores belong together"),
        ({}, {"token_file": "t"}, "token_file of client of stores is 't'; it must be an absolute path"),
        ({}, {"token": "t"}, "x: stores: client: unknown key 'token'; the keys are "),
    ],
)
def test_settings_that_cannot_work_are_refused(options: dict[str, Any], client: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        stores(options, client)
    assert message in str(caught.value)


def test_the_url_has_what_the_client_sends() -> None:
    assert stores({}, {}).url("10.0.0.1:1", "s") == "grpc://10.0.0.1:1/s"
    secured = stores({"tls-cert": "/c", "tls-key": "/k"}, {"token_file": "/t & t", "ca": "/a"})
    assert secured.url("10.0.0.1:1") == "grpcs://10.0.0.1:1/?token_file=/t+%26+t&ca=/a"


@needs_openssl
def test_workers_call_stores_that_demand_a_token_over_tls(tmp_path: Path) -> None:
    make_store(tmp_path / "s", [[[1, 2, 3, 4] * 9]], vocab_size=9).close()
    make_certificates(tmp_path)
    (tmp_path / "token").write_text(add_token(tmp_path / "access.toml", "workers", {"default": Role.READ}))
    files = {"tls_cert": "server.pem", "tls_key": "server.key", "access": "access.toml"}
    options = {name: str(tmp_path / file) for name, file in files.items()}
    client = {"token_file": str(tmp_path / "token"), "ca": str(tmp_path / "ca.pem")}
    config = config_from(
        {
            "name": "demo",
            "folder": str(tmp_path),
            "stores": {"datastores": {"s": str(tmp_path / "s")}, "options": options, "client": client},
            "workers": {"model": "/m", "count": 0},
        },
        "x",
    )
    [spec] = wanted_servers(config, [NODE]).values()
    server = ServerProcess(spec.command(NODE, tmp_path), tmp_path / "log")
    try:
        address = server.wait_ready(HANG).grpc
        TopologyWriter().write(PublishedTopology(1, topologies_of({"a": address}, config.stores)), tmp_path)
        with FanoutDatastore(f"{tmp_path / FILE}?zone=a", 5.0) as remote:  # as a worker does
            assert remote.lookup([1, 2, 3]) == (3, 9)
        assert server_facts("store", config.stores.url(address))["version"] == __version__
        refused: list[tuple[type[SuffolkError], str]] = [
            (PermissionDenied, f"grpcs://{address}/?ca={tmp_path / 'ca.pem'}"),
            (Unavailable, f"grpc://{address}/?token_file={tmp_path / 'token'}"),
        ]
        for error, url in refused:
            with pytest.raises(error):
                server_facts("store", url)
    finally:
        server.stop(0)
