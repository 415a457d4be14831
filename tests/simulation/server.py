"""A server with a copy: real documents, log and decisions, on a disk that fails."""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from suffolk.datastore.documents import Document
from suffolk.datastore.errors import Corruption, ResourceExhausted, SuffolkError
from suffolk.datastore.query import parse_query
from suffolk.serving.store.live_store.batch import make_batch
from suffolk.serving.store.live_store.contents import live_pages, select, unpack_origin
from suffolk.serving.store.live_store.identity import StoreIdentity, log_folder
from suffolk.serving.store.live_store.log import ALWAYS, NONE
from suffolk.serving.store.live_store.log_file import HEADER_BYTES
from suffolk.serving.store.live_store.record import encode
from suffolk.serving.store.live_store.settings import LiveSettings
from suffolk.serving.store.live_store.times import StoreClock
from suffolk.serving.store.live_store.writer import LiveWriter
from suffolk.serving.store.replication.feed import Feed, Subscription
from suffolk.serving.store.replication.follower import TICK_SECONDS, Leader
from suffolk.serving.store.replication.member import Member
from suffolk.serving.store.replication.messages import Hello, ReplicaStatus, records_of
from suffolk.serving.store.replication.servicer import HEARTBEAT_SECONDS
from tests.simulation.world import SimulatedRegister, World

VOCABULARY = 32
IDENTITY = StoreIdentity(VOCABULARY, 8, None, "00" * 16)
MAX_LAG = 5.0
FLUSH_SECONDS = 0.1


@dataclass
class Message:
    """What a leader sends: records, or only the first answer."""

    records: Sequence[bytes] = ()
    ahead: tuple[int, int] | None = None
    time: int = 0
    epoch: int = 0
    refill: bool | None = None


class Stream:
    """A connection from a follower to its leader. Each end may be broken alone; what is under way arrives or not."""

    def __init__(self, world: World, follower: Process, leader: Process, target: Leader) -> None:
        self.world, self.follower, self.leader, self.target = world, follower, leader, target
        self.broken_at_follower = self.broken_at_leader = False
        self._stack = ExitStack()
        self._subscription: Subscription | None = None
        self._waiting: dict[bool, deque[Callable[[], None]]] = {True: deque(), False: deque()}
        hello = follower.member.hello(target[1])
        self._send(True, lambda: self._greet(hello))

    def break_follower(self) -> None:
        """The follower gives the connection up."""
        if not self.broken_at_follower:
            self.broken_at_follower = True
            self.follower.member.end_following()
            self._send(True, self.break_leader)

    def break_leader(self) -> None:
        """The leader gives the connection up."""
        if not self.broken_at_leader:
            self.broken_at_leader = True
            self._stack.close()
            self._send(False, self.break_follower)

    def _send(self, to_leader: bool, event: Callable[[], None]) -> None:
        """Let ``event`` happen at the other end, after those that were sent before it."""
        delay = self.world.chooser.uniform(0.001, 0.02) if self.world.chooser.random() < 0.98 else 1.5
        self._waiting[to_leader].append(event)
        self.world.after(delay, lambda: self._deliver(to_leader))

    def _deliver(self, to_leader: bool) -> None:
        """Deliver the oldest event, or try later if the link is cut, or the process stands still."""
        ends = (self.follower, self.leader) if to_leader else (self.leader, self.follower)
        if not self.world.reaches(ends[0].number, ends[1].number) or ends[1].paused:
            self.world.after(0.1, lambda: self._deliver(to_leader))
            return
        event = self._waiting[to_leader].popleft()
        if ends[1].runs and not (self.broken_at_leader if to_leader else self.broken_at_follower):
            event()

    def _greet(self, hello: Hello) -> None:
        try:
            welcome = self._stack.enter_context(self.leader.member.followed(hello))
        except SuffolkError:
            self.break_leader()
            return
        self._subscription = welcome.subscription
        self._reply(Message(epoch=welcome.epoch, refill=welcome.refill))
        for record in welcome.missing:
            self._reply(Message([record]))
        self._pump()

    def _pump(self) -> None:
        if self.broken_at_leader or not self.leader.runs:
            return
        if not self.leader.paused:
            assert self._subscription is not None
            try:
                batch = self.leader.feed.take(self._subscription, 0)
            except SuffolkError:
                self.break_leader()
                return
            self._reply(Message([batch.records], (batch.position, batch.digest), int(self.world.now) + 1))
        waiting = 0.01 if self._subscription and self._subscription.waiting else HEARTBEAT_SECONDS / 4
        self.world.after(waiting, self._pump)

    def _reply(self, message: Message) -> None:
        if message.refill is None and self.world.chooser.random() < self.leader.garble:
            self._send(False, lambda: self._spoil(message))
        else:
            self._send(False, lambda: self._repeat(message))

    def _spoil(self, message: Message) -> None:
        """Lose, double or change a message, if the leader is whole. From now on, the follower's documents count as spoiled."""
        server, member = self.leader.server, self.leader.member
        whole = self.leader.runs and self.leader.feed.leads and not server.damaged
        if whole and member.id in self.world.entry.value.in_sync:
            self.follower.server.damaged = self.world.now
            kind = self.world.chooser.choice(["lost", "doubled", "changed"])
            if kind == "lost":
                return
            if kind == "doubled":
                self._repeat(message)
            elif message.ahead is not None:
                message = replace(message, records=[_changed(each) for each in message.records])
        self._repeat(message)

    def _repeat(self, message: Message) -> None:
        member = self.follower.member
        try:
            if message.refill is not None:
                member.begin_following(message.epoch, message.refill, str(self.leader.number))
                return
            records = [each for record in message.records for each in records_of(record)]
            position = member.repeat(records, self.target[1], message.ahead, message.time)
        except SuffolkError:
            self.break_follower()
            return
        self._send(True, lambda: self._confirm(position if message.ahead else 0))

    def _confirm(self, position: int) -> None:
        if self._subscription is not None:
            self.leader.feed.confirm(self._subscription, position)


class Process:
    """A running server. It ends with ``kill``."""

    def __init__(self, world: World, server: Server, durability: str) -> None:
        self.world, self.number, self.server = world, server.number, server
        self.runs, self.paused, self.garble = True, False, 0.0
        self.stream: Stream | None = None
        self.feed = Feed("x", server.copies, world.clock)
        settings = LiveSettings(durability=durability, threads=1)
        self.settings = settings
        self.writer = LiveWriter(server.folder, IDENTITY, settings, None, self.feed)
        register = SimulatedRegister(world, server.number)
        self.member = Member(
            "x",
            server.replica_id(),
            server.new_id,
            self.writer,
            self.feed,
            register,
            MAX_LAG,
            clock=world.clock,
            run=f"{world.chooser.getrandbits(64):x}",
        )
        self.writer.clock = StoreClock(0, lambda: world.now + server.clock_error, world.clock)
        self._append = self.writer.log.write
        self._tick()
        self._flush()

    def kill(self) -> None:
        """End at once. What was written stays; what was not flushed may be lost with the power."""
        self.runs = False
        log = self.writer.log
        self.server.unsynced = log.unsynced_bytes
        self.writer.index.close()
        if log._descriptor is not None:
            os.close(log._descriptor)
            log._descriptor = None

    def fill_disk(self, full: bool) -> None:
        """Refuse all writes, or allow them again."""

        def refuse(record: bytes, newest: int) -> int:
            raise ResourceExhausted("the disk is full")

        self.writer.log.write = refuse if full else self._append  # type: ignore[method-assign]

    def fail_disk(self) -> None:
        """Fail the next flush with EIO."""
        self.writer.log.fail("it cannot be flushed (EIO)")

    def append(self, name: str, tokens: Sequence[int]) -> tuple[int, int, int]:
        """Append a document. Returns its number, the position to wait for, and the reign."""
        reign = self.feed.require_copies()
        batch = make_batch([Document(name, {}, np.array(tokens))], None, IDENTITY, self.settings)
        appended = self.writer.append(batch, False)
        return appended.sequence, appended.sequence + 1, reign

    def delete(self, name: str) -> tuple[bool, int, int]:
        """Delete documents by their id. Returns whether there were any, the position to wait for, and the reign."""
        reign = self.feed.require_copies()
        found = select(self.writer.index, self.writer.next_sequence, parse_query([name], ())).sequences
        if found:
            self.writer.remove(found)
        return bool(found), self.writer.next_sequence, reign

    def documents(self) -> dict[int, tuple[str, list[int]]]:
        """Number -> id and tokens of each document."""
        return {
            number: (_source(origin), tokens.tolist())
            for page in live_pages(self.writer.index, self.writer.next_sequence)
            for number, origin, tokens in zip(page.sequences.tolist(), page.origins, page.texts(), strict=True)
        }

    def _tick(self) -> None:
        if not self.runs:
            return
        if not self.paused:
            with suppress(SuffolkError):
                self._follow(self.member.tick(lambda: self.server.ask(self)))
        self.world.after(TICK_SECONDS * self.world.chooser.uniform(0.8, 1.2), self._tick)

    def _follow(self, leader: Leader | None) -> None:
        stream = self.stream if self.stream is not None and not self.stream.broken_at_follower else None
        if leader is None or (stream is not None and stream.target == leader and not self.member.is_stalled()):
            return
        if stream is not None:
            stream.break_follower()
        if (found := self.server.process_of(leader[0])) is not None:
            self.stream = Stream(self.world, self, found, leader)

    def _flush(self) -> None:
        """As the thread of ``Log`` under the durability "interval"."""
        if self.runs:
            with suppress(SuffolkError):
                self.writer.log.sync()
            self.world.after(FLUSH_SECONDS, self._flush)


@dataclass
class Server:
    """A machine: its disk, and the process that runs on it, if one does.

    Attributes:
        unsynced: bytes at the end of the log that a loss of power takes, after the process was killed.
        damaged: when the copy lost something, or was spoiled, if it was not found to be whole since; else 0.
        clock_error: seconds that its clock is ahead.
    """

    world: World
    number: int
    folder: Path
    copies: int
    durable: bool
    others: list[Server] = field(default_factory=list)
    process: Process | None = None
    unsynced: int = 0
    damaged: float = 0.0
    clock_error: float = 0.0

    def replica_id(self) -> str:
        return path.read_text() if (path := self.folder / "id").exists() else self.new_id()

    def new_id(self) -> str:
        """As ``replica.new_replica_id``, but by the seed."""
        found = f"{self.number}-{self.world.chooser.getrandbits(32):x}"
        (self.folder / "id").write_text(found)
        return found

    def start(self) -> None:
        """Start a process. A folder that cannot be read is emptied, as people do after they replaced a disk."""
        log_folder(self.folder).mkdir(parents=True, exist_ok=True)
        try:
            self.process = Process(self.world, self, ALWAYS if self.durable else NONE)
        except Corruption:
            self.empty()
            self.process = Process(self.world, self, ALWAYS if self.durable else NONE)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process = None

    def lose_power(self) -> None:
        """End the process, and lose what was not flushed."""
        self.kill()
        self.cut_tail(self.unsynced)

    def cut_tail(self, size: int) -> None:
        if (log := self._newest()) is not None and size:
            os.truncate(log, max(0, log.stat().st_size - size))

    def flip_tail(self) -> None:
        """Flip a bit near the end of the log."""
        if (log := self._newest()) is not None and (size := log.stat().st_size) > 40:
            content = bytearray(log.read_bytes())
            content[size - 1 - self.world.chooser.randrange(min(40, size - HEADER_BYTES))] ^= (
                1 << self.world.chooser.randrange(8)
            )
            log.write_bytes(content)

    def save(self, to: Path) -> None:
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(self.folder, to)

    def restore(self, saved: Path) -> None:
        self.empty()
        shutil.copytree(saved, self.folder, dirs_exist_ok=True)

    def empty(self) -> None:
        shutil.rmtree(self.folder)
        log_folder(self.folder).mkdir(parents=True)

    def ask(self, asking: Process) -> dict[str, ReplicaStatus]:
        """What the other servers say that can be reached."""
        found = {}
        for other in self.others:
            reached = self.world.reaches(self.number, other.number) and self.world.reaches(other.number, self.number)
            if other.process is not None and not other.process.paused and reached:
                status = other.process.member.status()
                found[status.id] = status
        return found

    def process_of(self, replica: str) -> Process | None:
        return next((each.process for each in self.others if each.process and each.process.member.id == replica), None)

    def _newest(self) -> Path | None:
        return max(log_folder(self.folder).glob("*.log"), default=None)


@cache
def _source(origin: bytes) -> str:
    return str(unpack_origin(origin).source)


def _changed(records: bytes) -> bytes:
    """Records with another token in the first document: what no checksum of a record finds."""
    changes: list[Any] = [each.change for each in records_of(records)]
    for place, each in enumerate(changes):
        if len(each.tokens):
            tokens = each.tokens.copy()
            tokens[0] = (tokens[0] + 1) % VOCABULARY
            changes[place] = replace(each, tokens=tokens)
            break
    return b"".join(map(encode, changes))
