"""Addresses of several servers, and topology files."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from suffolk.datastore.errors import Corruption, InvalidArgument, NotFound
from suffolk.serving.clients.fanout.topology import (
    ReplicaAddress,
    Shard,
    Topology,
    parse_address,
    read_topology,
    write_topology,
)
from suffolk.serving.net.url import is_remote, names_several

FOUR = Topology(
    shards=tuple(
        Shard(replicas=tuple(ReplicaAddress(url=f"grpc://{host}/code") for host in hosts))
        for hosts in (("a:1", "b:1"), ("c:1", "d:1"))
    )
)


def urls(address: str) -> list[list[str]]:
    return [[replica.url for replica in shard.replicas] for shard in parse_address(address).topology.shards]


def test_commas_part_replicas_and_plus_signs_part_shards() -> None:
    assert parse_address("grpc://a:1,b:1+c:1,d:1/code").topology == FOUR
    assert urls("grpc://[::1]:1,[::1]:2/x/y?deadline_ms=7") == [
        ["grpc://[::1]:1/x/y?deadline_ms=7", "grpc://[::1]:2/x/y?deadline_ms=7"]
    ]
    assert urls("grpcs://a,b?ca=file") == [["grpcs://a?ca=file", "grpcs://b?ca=file"]]
    assert parse_address("grpc://a,b/x?deadline_ms=7").deadline == 0.007


@pytest.mark.parametrize(
    ("name", "remote", "several"),
    [
        ("grpc://a:1,b:1/code", True, True),
        ("grpcs://a+b", True, True),
        ("servers/code.json", True, True),
        ("code.json?zone=a", True, True),
        ("grpc://a:1/code,wiki", True, False),
        ("grpc://a?token_file=a,b", True, False),
        ("grpc+unix:///a,b#code", True, False),
        ("s3://bucket/a,b.json", True, False),
        ("stores/code", False, False),
    ],
)
def test_which_names_are_addresses(name: str, remote: bool, several: bool) -> None:
    assert (is_remote(name), names_several(name)) == (remote, several)


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("grpc://a:1,a:1/x", "grpc://a:1/x is named twice; name each server once"),
        ("grpc://a:1,/x", "grpc:///x: malformed URL"),
        ("grpc://a:1+,b/x", "malformed URL"),
        ("grpc://a:1,b:x/x", "grpc://b:x/x: Port could not be cast"),
        ("+".join(["grpc://a"] + ["a"] * 64), "shards has 65 values; their number must be between 1 and 64"),
        ("grpc://a,b/x?zone=a", "unknown key 'zone'"),
    ],
)
def test_malformed_urls(address: str, text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_address(address)
    assert text in str(caught.value)


def test_a_topology_file_is_written_and_read(tmp_path: Path) -> None:
    file = tmp_path / "code.json"
    write_topology(FOUR, file)
    assert read_topology(file) == FOUR
    assert json.loads(file.read_text())["shards"][0] == {
        "replicas": [{"url": "grpc://a:1/code", "zone": ""}, {"url": "grpc://b:1/code", "zone": ""}]
    }
    assert list(tmp_path.iterdir()) == [file]
    found = parse_address(f"{file}?zone=eu-1a&deadline_ms=5")
    assert (found.topology, found.file, found.zone, found.deadline) == (FOUR, file, "eu-1a", 0.005)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("{", "topology FILE: no JSON"),
        ("[]", 'the form is {"shards": [{"replicas": [{"url": "grpc://HOST:PORT/NAME"'),
        ('{"shards": []}', "topology FILE: shards has 0 values; their number must be"),
        (
            '{"shards": [{"replicas": [{"url": "grpc://a", "weight": 2}]}]}',
            "shards[0]: replicas[0]: unknown key 'weight'; the keys are url, zone",
        ),
        (
            '{"shards": [{"replicas": [{"url": "grpc://a/x"}]}, {"replicas": [{"url": "grpc://b/y"}]}]}',
            "grpc://b/y names datastore 'y', grpc://a/x names 'x'; serve both under one name ('suffolk serve NAME=STORE')",
        ),
        ('{"shards": [{"replicas": [{"url": "http://a"}]}]}', "http://a: not the URL of a draft service"),
    ],
)
def test_files_that_are_no_topology(content: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "code.json"
    file.write_text(content)
    with pytest.raises((InvalidArgument, Corruption)) as caught:
        read_topology(file)
    assert text.replace("FILE", str(file)) in str(caught.value)


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="cannot be read"):
        parse_address(str(tmp_path / "none.json"))
    (tmp_path / "code.json").write_text(json.dumps(asdict(FOUR)))
    with pytest.raises(
        InvalidArgument, match="unknown key 'zones' .did you mean zone.*; the keys are zone, deadline_ms"
    ):
        parse_address(f"{tmp_path}/code.json?zones=a")
    with pytest.raises(InvalidArgument, match="deadline_ms is '0'"):
        parse_address(f"{tmp_path}/code.json?deadline_ms=0")
