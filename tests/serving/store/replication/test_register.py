"""The register: one of several changes at once wins, in every system that can hold it."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from suffolk.datastore.errors import Corruption, InvalidArgument, Unavailable, Unsupported
from suffolk.datastore.remote_folder import RemoteFolder
from suffolk.serving.store.replication.register import KEPT, Entry, Leadership, Register, StoredRegister, open_register
from tests.support.s3_server import S3Server
from tests.support.waiting import until

THREADS, ROUNDS = 4, 5


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[str]:
    """Address of a running etcd."""
    if (program := shutil.which("etcd")) is None:
        pytest.skip("etcd is not installed")
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        client, peer = (f"http://127.0.0.1:{each.getsockname()[1]}" for each in (one, other))
    words = ["--data-dir", str(tmp_path / "etcd"), "--listen-client-urls", client, "--advertise-client-urls", client]
    words += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"]
    with subprocess.Popen([program, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        yield client.removeprefix("http://")
        process.kill()


def contend(registers: list[Register]) -> None:
    """Change one register from several sides; each version has one winner."""
    start = threading.Barrier(len(registers))

    def count(number: int) -> int:
        won = 0
        while (entry := registers[number].read()).value.epoch < THREADS * ROUNDS:
            won += registers[number].swap(
                entry.version, replace(entry.value, epoch=entry.value.epoch + 1, run=str(number))
            )
        return won

    def begin(number: int) -> int:
        start.wait()
        return count(number)

    with ThreadPoolExecutor(len(registers)) as pool:
        won = sum(pool.map(begin, range(len(registers))))
    assert registers[0].read().value.epoch == THREADS * ROUNDS
    assert won <= THREADS * ROUNDS  # a change that others followed at once may count as lost


def check(register: Register) -> None:
    assert register.read() == Entry()
    first = Leadership().succeeded("a", "run", ("a", "b"), 7, 1 << 63)
    assert register.swap(0, first)
    assert not register.swap(0, replace(first, leader="b"))
    entry = register.read()
    assert entry.value == first
    assert register.swap(entry.version, replace(first, leader="b"))
    assert not register.swap(entry.version, first)
    assert register.read().value.leader == "b"


def test_a_folder(tmp_path: Path) -> None:
    check(open_register(f"file://{tmp_path}/one", "chat"))
    contend([open_register(f"file://{tmp_path}/many", "chat") for _ in range(THREADS)])


def test_s3(s3: S3Server) -> None:
    bucket = s3.make_bucket()
    check(open_register(bucket, "chat"))
    contend([open_register(f"{bucket}/many/", "t/chat") for _ in range(2)])


def test_etcd(etcd: str) -> None:
    register = open_register(f"etcd://127.0.0.1:1,{etcd}/suffolk", "chat")

    def answers() -> bool:
        try:
            return register.read() == Entry()
        except Unavailable:
            return False

    until(answers)
    check(register)
    contend([open_register(f"etcd://{etcd}/many", "chat") for _ in range(THREADS)])


def test_earlier_values_go_and_a_late_writer_wins_nothing(tmp_path: Path) -> None:
    register = StoredRegister(f"file://{tmp_path}/r")
    for version in range(KEPT + 10):
        assert register.swap(version, Leadership(epoch=version + 1))
    assert len([*(tmp_path / "r" / "leadership").iterdir()]) == KEPT + 1
    assert not register.swap(2, Leadership(epoch=99))
    assert register.read().value.epoch == KEPT + 10


def test_bad_places_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("/folder", "grpc://host:1/x", "etcd://", "etcd://host:1"):
        with pytest.raises(InvalidArgument):
            open_register(url, "" if url == "etcd://host:1" else "chat")
    register = StoredRegister(f"file://{tmp_path}/r")
    register.swap(0, Leadership())
    (tmp_path / "r" / "leadership" / "000000000001.json").write_text("{}x")
    with pytest.raises(Corruption, match="the register is damaged"):
        register.read()
    with pytest.raises(Unavailable, match="etcd does not answer"):
        open_register("etcd://127.0.0.1:1/x", "chat").read()
    monkeypatch.setattr(RemoteFolder, "create", lambda self, name, content: True)
    with pytest.raises(Unsupported, match="this storage has no conditional writes; use s3://"):
        open_register(f"file://{tmp_path}/r", "chat")
