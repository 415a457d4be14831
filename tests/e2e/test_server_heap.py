"""Tests the heap of ``suffolk serve``: its threads share few arenas."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from suffolk.serving.clients.remote_datastore import connect
from suffolk.serving.net.grpc_server import ARENAS
from tests.support.processes import running
from tests.support.stores import make_store
from tests.support.waiting import HANG

ARENA_BYTES = 64 << 20
"""The address space that glibc reserves for an arena, at a multiple of its size."""
CLIENTS = 8


def test_threads_share_arenas(tmp_path: Path) -> None:
    make_store(tmp_path / "wiki", [[[1, 2, 3, 4, 1, 2, 5] * 20]], vocab_size=40).close()

    def draft(client: int) -> None:
        with closing(connect(url, HANG)) as store:
            for _ in range(20):
                store.draft_batch([[1, 2]] * 8)

    with running("serve", str(tmp_path / "wiki"), "--listen", "127.0.0.1:0", "--http", "off") as server:
        url = f"grpc://{server.endpoint()}/wiki"
        with ThreadPoolExecutor(CLIENTS) as clients:
            list(clients.map(draft, range(CLIENTS)))
        assert reserved_arenas(server.process.pid) < ARENAS  # one is the heap of the first thread


def reserved_arenas(process: int) -> int:
    """The arenas of a process, without that of its first thread: used memory and, right behind it, reserved address space."""
    count = used_begin = used_end = 0
    for line in Path(f"/proc/{process}/maps").read_text().splitlines():
        begin, end = (int(address, 16) for address in line.split()[0].split("-"))
        access = line.split()[1]
        if access == "---p" and begin == used_end and used_begin % ARENA_BYTES == 0:
            count += end == used_begin + ARENA_BYTES
        if access == "rw-p":
            used_begin, used_end = begin, end
    return count
