"""The servers of a datastore: opened, probed, and replaced when their topology file changes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from suffolk.datastore.errors import InvalidArgument, SuffolkError
from suffolk.datastore.files import file_version
from suffolk.datastore.periodic_thread import PeriodicThread
from suffolk.serving.clients.fanout.replica_client import ReplicaClient
from suffolk.serving.clients.fanout.replica_set import ReplicaSet
from suffolk.serving.clients.fanout.topology import Address, ReplicaAddress, Topology, read_topology
from suffolk.serving.clients.remote_datastore import INFO_DEADLINE, TOKENIZER_DEADLINE

UPKEEP_SECONDS = 1.0
"""Seconds between two probes of an ejected server, and between two checks of the topology file."""
PROBE_DEADLINE = 1.0
_PROBES = 32
"""Probes at a time."""
_FULL_ROUND = 10
"""Rounds of upkeep after which servers that are up are probed too, because they may serve another datastore now."""
LOG = logging.getLogger("suffolk.fanout")


class Servers:
    """All servers of a datastore, by shard. A thread probes them and follows the topology file. Thread-safe.

    Attributes:
        vocab_size: the vocabulary size of the datastore.
        shards: the current replica sets.
        names: the names of the datastores that are searched as one. Most have one name.
        partial: number of answers that lack a shard, or have unproven counts (``shards.ShardCall``).
    """

    def __init__(self, name: str, address: Address, deadline: float) -> None:
        """Connect.

        Args:
            name: the address as it was given, for messages.
            deadline: seconds that a draft or lookup may take.

        Raises:
            InvalidArgument: two servers differ in their vocabulary or tokenizer.
            Unavailable, NotFound, PermissionDenied and others: no server answers; the first error.
        """
        self.name, self._address, self._deadline = name, address, deadline
        self.vocab_size = 0
        self.names: tuple[str, ...] = ("",)
        self.partial = {"shard": 0, "unproven": 0}
        self._tokenizer: str | None = None
        self._known_by = ""  # the server that set vocabulary and tokenizer
        self._retired: list[tuple[float, ReplicaClient]] = []  # each with the time to close it, after its last calls
        self._seen = file_version(address.file)
        self._lock, self._count_lock = threading.Lock(), threading.Lock()
        self.shards: tuple[ReplicaSet, ...] = ()
        self.shards = self._connect(address.topology)
        self._rounds = 0
        errors = self._probe(self._replicas(), INFO_DEADLINE)  # long enough to connect
        refused = [error for error in errors if isinstance(error, InvalidArgument)]
        if refused or not any(shard.is_up for shard in self.shards):
            self._close_replicas()
            raise (refused or errors)[0]
        for replica in self._replicas():
            if replica.problem:
                LOG.warning("%s: %s is not used: %s", name, replica.label, replica.problem)
        self._thread = PeriodicThread(f"fanout-{name}", self._round, UPKEEP_SECONDS)

    def close(self) -> None:
        """End the thread, and close all connections."""
        self._thread.close()
        self._close_replicas()

    def count_partial(self, reason: str) -> None:
        """Count a partial answer. ``reason``: a key of ``partial``."""
        with self._count_lock:
            self.partial[reason] += 1

    def upkeep(self, everything: bool = False) -> None:
        """Take up a changed topology file, and probe the servers that are ejected, or all servers if ``everything``."""
        with self._lock:
            self._close_retired()
            self._follow_file()
            self._probe([replica for replica in self._replicas() if everything or not replica.is_up])

    def _round(self) -> None:
        self._rounds += 1
        self.upkeep(everything=self._rounds % _FULL_ROUND == 0)

    def _follow_file(self) -> None:
        file = self._address.file
        seen = file_version(file)
        if file is None or seen == self._seen:
            return
        self._seen = seen
        try:
            shards = self._connect(read_topology(file))
        except SuffolkError as error:
            LOG.warning("%s: the changed file is not used, the servers stay: %s", self.name, error)
            return
        kept = {replica for shard in shards for replica in shard}
        gone = [replica for replica in self._replicas() if replica not in kept]
        self._probe([replica for replica in kept if not replica.is_up])
        if not any(shard.is_up for shard in shards):
            LOG.warning("%s: no server of the changed file answers; they are probed once a second", self.name)
        self.shards = shards
        end = time.monotonic() + max(self._deadline, TOKENIZER_DEADLINE)  # the longest call
        self._retired += [(end, replica) for replica in gone]

    def _close_retired(self) -> None:
        now = time.monotonic()
        for end, replica in self._retired:
            if end <= now:
                replica.remote.close()
        self._retired = [each for each in self._retired if each[0] > now]

    def _connect(self, topology: Topology) -> tuple[ReplicaSet, ...]:
        """The replica sets of a topology. Servers that are connected stay connected."""
        present = {replica.address: replica for replica in self._replicas()}

        def replica(address: ReplicaAddress) -> ReplicaClient:
            return present.get(address) or ReplicaClient(address, self._deadline)

        return tuple(ReplicaSet(list(map(replica, shard.replicas)), self._address.zone) for shard in topology.shards)

    def _probe(self, replicas: Sequence[ReplicaClient], deadline: float = PROBE_DEADLINE) -> list[SuffolkError]:
        """Probe servers at the same time. Returns the errors of the servers that did not pass.

        A server that is up stays up if it does not answer a probe. Only failed calls eject it.
        """
        if not replicas:
            return []

        def ask(replica: ReplicaClient) -> dict[str, Any] | SuffolkError:
            try:
                return replica.remote.info(deadline)
            except SuffolkError as error:
                return error

        with ThreadPoolExecutor(min(_PROBES, len(replicas)), "suffolk-probe") as pool:
            answers = list(pool.map(ask, replicas))
        errors: list[SuffolkError] = []
        for replica, answer in zip(replicas, answers, strict=True):
            if isinstance(answer, SuffolkError):
                if not replica.is_up:
                    errors.append(_refuse(replica, answer, mismatched=False))
            elif mismatch := self._mismatch(replica, answer):
                errors.append(_refuse(replica, mismatch, mismatched=True))
            else:
                replica.probed(int(answer["generation"]), bool(answer.get("replica", {}).get("in_sync", True)))
        return errors

    def _mismatch(self, replica: ReplicaClient, info: dict[str, Any]) -> InvalidArgument | None:
        """The error of a server with another vocabulary or tokenizer than the first server."""
        tokenizer = info.get("tokenizer")
        if not self.vocab_size:
            self.vocab_size, self.names = int(info["vocab_size"]), replica.remote.names
            self._known_by = replica.label
        for field, found, expected in (
            ("vocabulary", info["vocab_size"], self.vocab_size),
            ("tokenizer", tokenizer, self._tokenizer or tokenizer),
        ):
            if found is not None and found != expected:
                return InvalidArgument(
                    f"{self.name}: {replica.label} has another {field} ({str(found)[:12]}) than {self._known_by} "
                    f"({str(expected)[:12]}); serve the same datastore on both"
                )
        self._tokenizer = self._tokenizer or tokenizer
        return None

    def _replicas(self) -> list[ReplicaClient]:
        return [replica for shard in self.shards for replica in shard]

    def _close_replicas(self) -> None:
        for replica in [*self._replicas(), *(replica for _, replica in self._retired)]:
            replica.remote.close()


def _refuse(replica: ReplicaClient, error: SuffolkError, mismatched: bool) -> SuffolkError:
    """Keep a server ejected. Returns ``error``; logs it once if the server or its address must be changed."""
    if isinstance(error, InvalidArgument) and replica.problem != str(error):
        LOG.warning("%s", error)
    replica.refuse(str(error), mismatched)
    return error
