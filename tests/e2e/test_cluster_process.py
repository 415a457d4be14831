"""``suffolk cluster`` on Ray on this machine: bad input, an update and kills under load, and the end."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import suffolk
from research.cluster_load import Load
from research.local_ray import LocalRay, local_ray
from suffolk.datastore.errors import Unavailable
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer
from suffolk.serving.clients.fanout.topology import shard_of
from suffolk.serving.net.access_file import add_token
from suffolk.serving.net.identity import Role
from tests.support.certificates import make_certificates, needs_openssl
from tests.support.processes import ROOT, SUFFOLK, WAIT
from tests.support.quick_costs import known_costs
from tests.support.ray_cluster import QUICK
from tests.support.stores import make_store
from tests.support.tiny_models import save_tiny
from tests.support.waiting import until

SET_VERSION = """
from pathlib import Path
import suffolk.datastore.version
suffolk.datastore.version.__version__ = Path(__file__).with_name("version").read_text()
"""
"""In ``sitecustomize``, it gives a Python process the version of Suffolk in a file."""
KINDS = {"store": "serve", "worker": "worker"}
"""Kind of a server -> its command."""

pytestmark = [pytest.mark.timeout(900), needs_openssl]  # many processes start one after the other


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRay]:
    """Ray with two nodes. Each has the version of Suffolk in a file, and so have the commands."""
    folder = tmp_path_factory.mktemp("version")
    (folder / "sitecustomize.py").write_text(SET_VERSION)
    (folder / "version").write_text("0.0.1")
    variables = {"PYTHONPATH": str(folder)}
    with patch.dict("os.environ", QUICK), local_ray(("a", "b"), dict.fromkeys("ab", variables)) as found:
        found.environment["PYTHONPATH"] = str(folder)
        yield found


def free_block(size: int) -> int:
    """The first of ``size`` free ports in a row. They are below the ports that the system gives to other tests."""
    while True:
        first = random.randrange(20_000, 32_000)
        with ExitStack() as stack, suppress(OSError):
            for port in range(first, first + size):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A cluster with a tiny model, one worker with TLS, and a free port for its front."""
    folder = tmp_path_factory.mktemp("cluster")
    model = save_tiny(folder / "tiny")
    tokenizer = fingerprint(load_tokenizer(str(model)))
    make_store(folder / "bytes", [[list(range(66, 92)) * 9]], vocab_size=257, tokenizer=tokenizer).close()
    access, token = folder / "access.toml", folder / "token"
    token.write_text(add_token(access, "workers", {"default": Role.ADMIN}))
    port = free_block(20)
    make_certificates(folder)
    tls = {name: str(folder / file) for name, file in (("tls_cert", "server.pem"), ("tls_key", "server.key"))}
    demanded = {"options": {"access": str(access)}, "client": {"token_file": str(token)}}
    return {
        "name": "demo",
        "folder": str(folder / "run"),
        "grace": 5,
        "stores": {"datastores": {"bytes": str(folder / "bytes")}, "count": 1} | demanded,
        "workers": {
            "model": str(model),
            "count": 1,
            "cpus": 0.5,
            "options": {"slots": 2, "costs": str(known_costs(model))} | tls,
            "client": {"ca": str(folder / "ca.pem")},
        },
        "front": {"port": port},
    }


def cluster(ray: LocalRay, *words: str, given: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``suffolk cluster WORDS``; ``given`` is the content of its file."""
    if given is not None:
        path = Path(given["folder"]).with_name("cluster.yaml")
        path.write_text(json.dumps(given))  # which is YAML too
        words = (*words, str(path))
    command = [*SUFFOLK, "cluster", *words, "--ray", ray.address]
    return subprocess.run(
        command, capture_output=True, text=True, env=ray.environment, cwd=ROOT, timeout=5 * WAIT, check=False
    )


def status(ray: LocalRay) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster(ray, "status", "--json").stdout)
    return found


def kill(ray: LocalRay, server: dict[str, Any]) -> None:
    """Kill the process of a server, and wait until another one is started in its place."""
    title = f"{sys.executable} -m suffolk.serving.cluster.tethered suffolk {KINDS[server['kind']]} "
    old = {*ray.processes(title)}
    assert server["pid"] in old
    os.kill(server["pid"], signal.SIGKILL)
    until(lambda: bool({*ray.processes(title)} - old))


def appends(store: suffolk.AppendableFanout, tokens: list[int]) -> bool:
    """Append a document, unless no leader has its copies in sync now."""
    try:
        return bool(store.append(tokens, group=str(tokens), replace=True).documents)
    except Unavailable:
        return False


def test_a_cluster_that_cannot_start_leaves_nothing_running(ray: LocalRay, values: dict[str, Any]) -> None:
    missing = cluster(ray, "up", given=values | {"stores": {"datastores": {"bytes": "file:///nowhere/bytes"}}})
    assert missing.returncode == 2
    assert "suffolk: store-" in missing.stderr.splitlines()[-1]
    assert "/nowhere/bytes" in missing.stderr.splitlines()[-1]
    assert not ray.processes("ray::ServerActor")
    assert not ray.processes("ray::Controller")


def test_a_cluster_answers_through_an_update_and_kills(ray: LocalRay, values: dict[str, Any]) -> None:
    up = cluster(ray, "up", given=values)
    assert up.returncode == 0, up.stderr
    assert "INFO" not in up.stderr
    killed = ""
    load = Load(values["front"]["port"], "tiny", tokens=16, clients=1, seed=1, pause=0.05)
    try:
        Path(ray.environment["PYTHONPATH"], "version").write_text("0.0.2")  # as if another one was installed
        options = values["workers"]["options"] | {"slots": 3, "remember": "chat"}
        workers = values["workers"] | {"count": 2, "options": options}
        chat, notes = {"tokenizer": workers["model"]}, {"tokenizer": workers["model"], "shards": 2}
        live = {
            "register": Path(values["folder"]).with_name("register").as_uri(),
            "count": 2,
            "port": values["front"]["port"] + 1,
            "live": {"chat": chat, "notes": notes},
        }
        changed = values | {"workers": workers, "stores": values["stores"] | live}
        updated = cluster(ray, "update", given=changed)
        assert updated.returncode == 0, updated.stderr
        front = ray.processes("ray::ServeReplica")
        assert cluster(ray, "up", given=changed).returncode == 0
        assert ray.processes("ray::ServeReplica") == front != []  # an unchanged front stays
        found = status(ray)
        assert found["settled"]
        assert {each["version"] for each in found["servers"]} == {found["version"]} == {"0.0.2"}
        servers = {each["name"]: each for each in found["servers"]}
        shards = ["notes@0-a", "notes@0-b", "notes@1-a", "notes@1-b"]
        assert [*servers] == [*shards, "store-a", "store-b", "worker-0", "worker-1"]
        leads = {name: servers[name]["replicas"]["notes"]["leads"] for name in shards}
        assert leads["notes@0-a"] + leads["notes@0-b"] == leads["notes@1-a"] + leads["notes@1-b"] == 1
        assert servers["store-a"]["generations"] == {"bytes": 1, "chat": 0}
        assert [servers[name]["slots"] for name in ("worker-0", "worker-1")] == [3, 3]
        killed = servers["worker-0"]["http"]
        [leader] = [each for each in found["servers"] if each.get("replicas", {}).get("chat", {}).get("leads")]
        copies = ",".join(servers[name]["grpc"] for name in ("store-a", "store-b"))
        token = values["stores"]["client"]["token_file"]
        chat = suffolk.open(f"grpc://{copies}/chat?token_file={token}&deadline_ms=5000", append=True)
        notes = suffolk.open(str(Path(found["topology"]).with_name("topology-notes.json")), deadline=5, append=True)
        until(lambda: appends(chat, [70, 71, 72]))
        groups = [[90, each] for each in range(91, 99)]
        assert {shard_of("default", str(group), 2) for group in groups} == {0, 1}
        for group in groups:
            until(lambda group=group: appends(notes, group))
        kill(ray, leader)
        kill(ray, servers[next(name for name in shards if leads[name])])
        kill(ray, servers["worker-0"])
        answered = len(load.outcomes)
        until(lambda: len(load.outcomes) > answered + 10)
        until(lambda: appends(chat, [80, 81, 82]))
        for text in ([70, 71, 72], [80, 81, 82]):
            assert chat.lookup(text, group=str(text), scope="group").count == 1
        until(lambda: chat.stats().documents > 2)  # texts of the workers
        chat.close()
        for group in groups:
            until(lambda group=group: appends(notes, group))
        until(lambda: notes.lookup([90]) == (1, len(groups)))  # as one store, once the copies are in sync
        assert sorted(notes.draft([90], max_nodes=16).tokens) == [last for _, last in groups]
        notes.close()
    finally:
        load.stop()
    assert not [each for each in load.outcomes if each.problem and each.worker != killed]
    assert not [each for each in load.outcomes if "another text" in each.problem]
    down = cluster(ray, "down")
    assert down.returncode == 0, down.stderr
    assert down.stdout == f"cluster demo: stopped front, {', '.join(servers)}, controller\n"
    assert not ray.processes("ray::ServerActor")
