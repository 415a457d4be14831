"""``suffolk cluster`` on Ray with two nodes on this machine: bad input, kills, an update under load, and the end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from research.cluster_load import Load
from research.local_ray import LocalRay, local_ray
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer
from tests.support.processes import ROOT, SUFFOLK, WAIT
from tests.support.stores import make_store
from tests.support.tiny_models import save_tiny

SET_VERSION = """
from pathlib import Path
import suffolk.datastore.version
suffolk.datastore.version.__version__ = Path(__file__).with_name("version").read_text()
"""
"""In ``sitecustomize``, it gives a Python process the version of Suffolk in a file."""


pytestmark = pytest.mark.timeout(900)  # many processes start one after the other


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRay]:
    """Ray with two nodes. Node "old" has another version of Suffolk than the commands and the other nodes."""
    folders = {name: tmp_path_factory.mktemp(name) for name in ("old", "new")}
    for name, folder in folders.items():
        (folder / "sitecustomize.py").write_text(SET_VERSION)
        (folder / "version").write_text(f"0.0.1+{name}")
    paths = {"a": "new", "b": "new", "old": "old"}
    with local_ray(("a", "old"), {node: {"PYTHONPATH": str(folders[name])} for node, name in paths.items()}) as found:
        found.environment["PYTHONPATH"] = str(folders["new"])
        yield found


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A cluster with a tiny model, two workers and a free port for its front."""
    folder = tmp_path_factory.mktemp("cluster")
    model = save_tiny(folder / "tiny")
    tokenizer = fingerprint(load_tokenizer(str(model)))
    make_store(folder / "bytes", [[list(range(66, 92)) * 9]], vocab_size=257, tokenizer=tokenizer).close()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return {
        "name": "demo",
        "folder": str(folder / "run"),
        "grace": 5,
        "stores": {"datastores": {"bytes": str(folder / "bytes")}, "count": 1},
        "workers": {"model": str(model), "count": 2, "cpus": 0.5, "options": {"slots": 2}},
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


def test_a_cluster_that_cannot_start_leaves_nothing_running(ray: LocalRay, values: dict[str, Any]) -> None:
    mixed = cluster(ray, "up", given=values)
    assert mixed.returncode == 2
    assert mixed.stderr.splitlines()[-1].startswith(
        "suffolk: node old has suffolk 0.0.1+old, and this machine 0.0.1+new"
    )
    ray.change("kill old")
    ray.change("add b")
    missing = cluster(ray, "up", given=values | {"stores": {"datastores": {"bytes": "file:///nowhere/bytes"}}})
    assert missing.returncode == 2
    assert "suffolk: store-" in missing.stderr.splitlines()[-1]
    assert "/nowhere/bytes" in missing.stderr.splitlines()[-1]
    assert not ray.processes("ray::ServerActor")
    assert not ray.processes("ray::Controller")


def test_a_cluster_answers_through_kills_and_an_update(ray: LocalRay, values: dict[str, Any]) -> None:
    up = cluster(ray, "up", given=values)
    assert up.returncode == 0, up.stderr
    load = Load(values["front"]["port"], "tiny", tokens=16, clients=2, seed=1)
    try:
        servers = {each["name"]: each for each in status(ray)["servers"]}
        assert [*servers] == ["store-a", "worker-0", "worker-1"]
        assert servers["store-a"]["generations"] == {"bytes": 1}
        killed = servers["worker-0"]
        for pid in (killed["pid"], servers["store-a"]["pid"]):
            os.kill(pid, signal.SIGKILL)
        Path(ray.environment["PYTHONPATH"], "version").write_text("0.0.2")  # as if another one was installed
        updated = cluster(ray, "update", given=values | {"workers": values["workers"] | {"options": {"slots": 3}}})
        assert updated.returncode == 0, updated.stderr
        found = status(ray)
        assert found["settled"]
        assert {each["version"] for each in found["servers"]} == {found["version"]} == {"0.0.2"}
        assert [each["slots"] for each in found["servers"] if each["kind"] == "worker"] == [3, 3]
    finally:
        load.stop()
    assert len(load.outcomes) > 20
    wrong = [each for each in load.outcomes if each.problem and each.worker != killed["http"]]
    assert not wrong
    assert not [each for each in load.outcomes if "another text" in each.problem]
    down = cluster(ray, "down")
    assert down.stdout == "cluster demo: stopped front, store-a, worker-0, worker-1, controller\n"
    assert not ray.processes("ray::ServerActor")


def test_a_signal_during_the_start_leaves_nothing_running(ray: LocalRay, values: dict[str, Any]) -> None:
    path = Path(values["folder"]).with_name("interrupted.yaml")
    path.write_text(json.dumps(values))
    command = [*SUFFOLK, "cluster", "up", str(path), "--ray", ray.address]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ray.environment, cwd=ROOT) as process:
        timer = threading.Timer(WAIT, process.kill)
        timer.start()
        assert process.stderr is not None
        for line in process.stderr:
            if "store-a starting" in line:
                process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        timer.cancel()
    assert not ray.processes("ray::ServerActor")
    assert not ray.processes("ray::Controller")
