"""Servers with copies of one live store, in processes that tests kill."""

from __future__ import annotations

import signal
import socket
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from suffolk.datastore.errors import SuffolkError, Unavailable
from suffolk.serving.live_store.settings import LiveSettings
from suffolk.serving.live_store.store import create_live_store
from suffolk.serving.replication.promote import promote, read_replicas
from suffolk.serving.replication.replica import ReplicaStatus, ReplicaStore
from tests.support.processes import Running, running
from tests.support.waiting import until

NAME = "chat"
VOCABULARY = 64


@dataclass
class Replicas:
    """``count`` servers, each with a copy of the store NAME in a folder of its own. A context manager; ``start`` starts one."""

    folder: Path
    count: int
    options: tuple[str, ...] = ()
    servers: dict[int, Running] = field(default_factory=dict)

    def __enter__(self) -> Replicas:
        self._stack = ExitStack()
        self.ports = _free_ports(self.count)
        for number in range(self.count):
            create_live_store(self.path(number), vocab_size=VOCABULARY).close()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def path(self, number: int) -> Path:
        """The folder of a copy."""
        return self.folder / f"node-{number}" / NAME

    def url(self, number: int) -> str:
        """The URL of a copy."""
        return f"grpc://127.0.0.1:{self.ports[number]}/{NAME}"

    @property
    def urls(self) -> list[str]:
        """The URLs of all copies."""
        return [self.url(number) for number in range(self.count)]

    def start(self, *numbers: int) -> None:
        """Start servers."""
        for number in numbers:
            peers = [f"--peer=grpc://127.0.0.1:{port}" for other, port in enumerate(self.ports) if other != number]
            words = ["--live", str(self.path(number)), "--listen", f"127.0.0.1:{self.ports[number]}", "--http", "off"]
            self.servers[number] = self._stack.enter_context(running("serve", *words, *peers, *self.options))

    def kill(self, number: int) -> None:
        """Kill a server with SIGKILL."""
        process = self.servers.pop(number).process
        process.kill()
        process.wait()

    def pause(self, number: int) -> None:
        """Stop the clock of a server's process."""
        self.servers[number].process.send_signal(signal.SIGSTOP)

    def resume(self, number: int) -> None:
        self.servers[number].process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Stop all servers in order."""
        for number in list(self.servers):
            code, errors = self.servers.pop(number).stop(signal.SIGTERM)
            assert code == 0, errors

    def promote(self) -> int:
        """Choose a leader among the servers that run; return its number. On a busy machine a server may answer only a later try."""
        leaders: list[str] = []

        def is_chosen() -> bool:
            try:
                leaders.append(promote(self.urls).leader)
            except Unavailable:
                return False
            return True

        until(is_chosen)
        return self.urls.index(leaders[0])

    def status(self, number: int) -> ReplicaStatus | SuffolkError:
        """What a copy is and has, or why it does not answer."""
        return read_replicas([self.url(number)])[self.url(number)]

    def await_step(self, *numbers: int) -> None:
        """Wait until the servers (default: all that run) have the same changes, and one of them leads."""
        wanted = numbers or tuple(self.servers)

        def same() -> bool:
            found = [self.status(number) for number in wanted]
            known = [each for each in found if isinstance(each, ReplicaStatus)]
            leaders = [each for each in known if each.leads]
            return (
                len(known) == len(wanted)
                and len({each.claim for each in known}) == 1
                and len(leaders) == 1
                and leaders[0].followers == len(wanted) - 1
            )

        until(same)

    def documents(self, number: int) -> list[tuple[str | None, str | None, list[int]]]:
        """Id, group and tokens of each document of a copy whose server is stopped."""
        with ReplicaStore(self.path(number), LiveSettings(threads=1)) as store:
            return [(each.source, str(each.metadata.get("group")), each.tokens.tolist()) for each in store.documents()]


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
