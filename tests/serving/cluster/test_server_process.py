"""Servers as child processes: start, errors, and their end with the parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import psutil
import pytest

from suffolk.datastore.errors import DeadlineExceeded, Unavailable
from suffolk.serving.cluster.config import ClusterConfig, StoresConfig, WorkersConfig
from suffolk.serving.cluster.node import RayNode
from suffolk.serving.cluster.server_actor import ServerActor, ServerProcess
from suffolk.serving.cluster.server_spec import ServerSpec, wanted_servers
from suffolk.serving.cluster.supervisor import ManagedServer
from tests.support.stores import make_store
from tests.support.waiting import HANG, until

LOOPBACK = ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stores") / "store"
    make_store(path, [[[1, 2, 3, 4] * 9]], vocab_size=9).close()
    return path


def test_a_server_starts_and_stops(store: Path, tmp_path: Path) -> None:
    server = ServerProcess(["serve", f"s={store}", *LOOPBACK], tmp_path / "log")
    address = server.wait_ready(HANG)
    assert address.grpc.startswith("127.0.0.1:")
    assert psutil.pid_exists(address.pid)
    server.stop(1)
    assert server.wait() == "ended with exit code 0"


def test_a_wait_ends_when_the_controller_of_another_one_waits(store: Path, tmp_path: Path) -> None:
    node = RayNode("1", "a", "127.0.0.1")
    config = ClusterConfig("demo", str(tmp_path), StoresConfig({"s": str(store)}), WorkersConfig("/m"))
    actor = ServerActor(wanted_servers(config, [node])["store-a"])
    actor._process = ServerProcess(["serve", f"s={store}", *LOOPBACK], tmp_path / "log")
    actor._process.wait_ready(HANG)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(actor.wait)
        until(lambda: actor._waits == 1)
        second = pool.submit(actor.wait)
        assert first.result(HANG) == ""
        actor.stop()
        assert second.result(HANG) == "ended with exit code 0"


def test_an_error_at_the_start_is_one_line(tmp_path: Path) -> None:
    server = ServerProcess(["serve", f"s={tmp_path / 'nothing'}", *LOOPBACK], tmp_path / "log")
    with pytest.raises(Unavailable, match="nothing") as caught:
        server.wait_ready(HANG)
    assert "\n" not in str(caught.value)


def test_a_server_that_does_not_start_in_time_is_killed(store: Path, tmp_path: Path) -> None:
    server = ServerProcess(["serve", f"s={store}", *LOOPBACK], tmp_path / "log")
    with pytest.raises(DeadlineExceeded, match=r"not started within 0\.01 s"):
        server.wait_ready(0.01)
    assert server.wait() == "ended by SIGKILL"


def test_a_server_ends_with_a_killed_parent(store: Path, tmp_path: Path) -> None:
    words = ["serve", f"s={store}", *LOOPBACK]
    code = f"""
from pathlib import Path
from suffolk.serving.cluster.server_actor import ServerProcess
server = ServerProcess({words!r}, Path({str(tmp_path / "log")!r}))
print(server.wait_ready({HANG}).pid, flush=True)
server.wait()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        os.kill(parent.pid, signal.SIGKILL)
        psutil.wait_procs([child], timeout=HANG)
    end = time.monotonic() + HANG
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_server_that_never_starts_is_tried_again_for_good() -> None:
    """Regression: after 1024 failed starts the pause was no longer a number that a float can hold."""
    slot = ManagedServer(cast(ServerSpec, None))
    pauses = []
    for _ in range(1100):
        slot.fail("no", 0.0)
        pauses.append(slot.retry_at)
    assert pauses[:6] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0]
    assert pauses[-1] == 30.0
    slot.change("ready")
    slot.pause = 0.0
    slot.fail("lost", 5.0)
    assert slot.retry_at == 5.0  # at once
