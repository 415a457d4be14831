"""Servers with copies of one live store, in processes that tests kill."""

from __future__ import annotations

import signal
import socket
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from suffolk.datastore.errors import SuffolkError
from suffolk.serving.store.live_store.store import create_live_store
from suffolk.serving.store.replication.messages import ReplicaStatus
from suffolk.serving.store.replication.peer import read_replicas
from tests.support.forked import running
from tests.support.processes import Running
from tests.support.replica_pair import make_replica
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
            self.make(number)
        return self

    def make(self, number: int) -> None:
        """Make an empty folder of a copy."""
        create_live_store(self.path(number), vocab_size=VOCABULARY).close()

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
            words += ["--register", f"file://{self.folder}/register"]
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

    def leader(self) -> int:
        """The number of the server that leads; waits until one does."""
        found: list[int] = []

        def is_led() -> bool:
            known = {number: self.status(number) for number in self.servers}
            leaders = {number: each for number, each in known.items() if isinstance(each, ReplicaStatus) and each.leads}
            last = max((each.epoch for each in known.values() if isinstance(each, ReplicaStatus)), default=0)
            found[:] = [number for number, each in leaders.items() if each.epoch == last]
            return len(found) == 1

        until(is_led)
        return found[0]

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
                and len({(each.position, each.digest) for each in known}) == 1
                and all(each.in_sync for each in known)
                and len(leaders) == 1
                and leaders[0].followers == len(wanted) - 1
            )

        until(same)

    def documents(self, number: int) -> list[tuple[str | None, str | None, list[int]]]:
        """Id, group and tokens of each document of a copy whose server is stopped."""
        with make_replica(self.path(number)) as store:
            return [(each.source, str(each.metadata.get("group")), each.tokens.tolist()) for each in store.documents()]


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
