"""One simulated history: clients change a store while faults happen; then everything is repaired, and checked."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from suffolk.datastore.errors import SuffolkError
from suffolk.serving.store.replication.feed import COPY_SECONDS
from tests.simulation.server import MAX_LAG, VOCABULARY, Process, Server
from tests.simulation.world import World

SECONDS = 40.0
"""Time with faults."""
HEAL_SECONDS = 90.0
_SHM = Path("/dev/shm")


@dataclass
class History:
    """What clients know. Times are those of the acknowledgement; None: it is unknown whether the change was made.

    Attributes:
        appended, deleted: by id.
        numbers: id of the document with each number that was ever given.
    """

    appended: dict[str, float | None] = field(default_factory=dict)
    deleted: dict[str, float | None] = field(default_factory=dict)
    numbers: dict[int, str] = field(default_factory=dict)
    acknowledged: int = 0


class Simulation:
    """``run`` raises AssertionError if a promise of docs/design/replication.md is broken."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.world = World(seed)
        self.history = History()
        self.faults: Counter[str] = Counter()
        chooser = self.chooser = self.world.chooser
        count = chooser.choice([1, 2, 3, 3, 3, 4, 5])
        copies, durable = chooser.randint(1, count), chooser.random() < 0.5
        self.servers = [Server(self.world, number, folder / str(number), copies, durable) for number in range(count)]
        self._saved = folder / "saved"
        self._names = 0
        self._done = False
        for each in self.servers:
            each.others = [other for other in self.servers if other is not each]

    def run(self) -> None:
        for each in self.servers:
            self.world.after(self.chooser.uniform(0, 1), each.start)
        self.world.run(4)
        self._client()
        self.world.after(1, self._fault)
        self.world.after(0.5, self._check_queries)
        self.world.run(SECONDS)
        self._done = True
        self._heal()
        self._check()
        for each in self.servers:
            each.kill()

    # Clients

    def _client(self) -> None:
        if self._done:
            return
        self._note_repaired()
        server = self.chooser.choice(self.servers)
        leaders = [each for each in self.servers if each.process is not None and each.process.feed.leads]
        if leaders and self.chooser.random() < 0.9:
            server = self.chooser.choice(leaders)
        if server.process is not None and not server.process.paused:
            known = sorted(self.history.appended.keys() - self.history.deleted.keys())
            if known and self.chooser.random() < 0.3:
                self._delete(server.process, self.chooser.choice(known[-20:]))
            else:
                self._append(server.process)
        self.world.after(self.chooser.uniform(0.01, 0.15), self._client)

    def _append(self, process: Process) -> None:
        self._names += 1
        name = f"d{self._names}"
        try:
            number, position, reign = process.append(name, _tokens(name))
        except SuffolkError as error:
            if "it cannot be flushed" in str(error):
                self.history.appended[name] = None
            return
        earlier = self.history.numbers.setdefault(number, name)
        assert earlier == name, f"number {number} was given to {earlier} and to {name}"
        self.history.appended[name] = None
        self._await(process, position, reign, partial(self.history.appended.__setitem__, name))

    def _delete(self, process: Process, name: str) -> None:
        try:
            found, position, reign = process.delete(name)
        except SuffolkError as error:
            if "it cannot be flushed" in str(error):
                self.history.deleted[name] = None
            return
        if not found:
            return  # the append was not made, or is not known to this server
        self.history.deleted[name] = None
        self._await(process, position, reign, partial(self.history.deleted.__setitem__, name))

    def _await(self, process: Process, position: int, reign: int, note: Callable[[float], None]) -> None:
        end = self.world.now + COPY_SECONDS

        def look() -> None:
            if not process.runs or self.world.now > end:
                return
            if not process.paused and process.feed.try_acknowledge(position, reign):
                self.history.acknowledged += 1
                note(self.world.now)
            else:
                self.world.after(0.02, look)

        look()

    # Faults

    def _fault(self) -> None:
        if self._done:
            return
        kinds = ("kill", "power", "pause", "cut", "one way", "register", "reset", "loss", "full", "eio", "garble")
        damages = ("flip", "rollback", "empty", "save", "save")
        kind = self.chooser.choice([*kinds, *damages, "kill", "kill all"])
        self.faults[kind] += 1
        server = self.chooser.choice(self.servers)
        seconds = self.chooser.choice([0.3, 1.0, 3.0, 7.0])
        if kind == "kill all":
            for each in self.servers:
                if self.chooser.random() < 0.8:
                    self._kill(each, each.kill, seconds * self.chooser.uniform(0.5, 1.5))
        elif kind == "save":
            server.save(self._saved / str(server.number))
        elif server.process is None:
            pass
        elif kind in ("flip", "rollback", "empty") or (kind == "power" and not server.durable):
            self._damage(server, kind, seconds)
        elif kind in ("kill", "power"):
            self._kill(server, server.kill if kind == "kill" else server.lose_power, seconds)
        else:
            self._disturb(server, server.process, kind, seconds)
        self.world.after(self.chooser.choice([0.1, 0.5, 2.0, 4.0]), self._fault)

    def _kill(self, server: Server, kill: Callable[[], None], seconds: float) -> None:
        if server.process is not None:
            kill()
            self.world.after(seconds, lambda: server.start() if server.process is None else None)

    def _damage(self, server: Server, kind: str, seconds: float) -> None:
        """Lose something on a disk, while another copy in sync is whole."""
        self._note_repaired()
        whole = [each for each in self.servers if each is not server and not each.damaged and self._in_sync(each)]
        saved = self._saved / str(server.number)
        if not whole or (kind == "rollback" and not saved.exists()):
            return
        server.damaged = self.world.now
        self._kill(server, server.lose_power if kind == "power" else server.kill, seconds)
        if kind == "flip":
            server.flip_tail()
        elif kind == "rollback":
            server.restore(saved)
        elif kind == "empty":
            server.empty()

    def _in_sync(self, server: Server) -> bool:
        """Whether the copy is in sync by the register, and is a copy of which the disk can be read."""
        return (
            server.process is not None
            and server.process.member.status().compared
            and (server.process.member.id in self.world.entry.value.in_sync)
        )

    def _note_repaired(self) -> None:
        """A copy is whole again when it is in sync, and leads or has the same as its leader since."""
        for each in self.servers:
            if each.damaged and self._in_sync(each):
                assert each.process is not None
                if each.process.feed.leads or each.process.member._complete > each.damaged:
                    each.damaged = 0.0

    def _disturb(self, server: Server, process: Process, kind: str, seconds: float) -> None:
        world, number = self.world, server.number
        if kind == "pause":
            process.paused = True
            world.after(seconds, lambda: setattr(process, "paused", False))
        elif kind in ("cut", "one way", "register"):
            far = [-1] if kind == "register" else [each.number for each in server.others]
            far = [*far, -1] if kind == "cut" and self.chooser.random() < 0.5 else far
            pairs = {(number, each) for each in far} | (
                {(each, number) for each in far} if kind != "one way" else set()
            )
            world.cut |= pairs
            world.after(seconds, lambda: world.cut.difference_update(pairs))
        elif kind == "reset" and process.stream is not None:
            self.chooser.choice([process.stream.break_follower, process.stream.break_leader])()
            process.stream.broken_at_follower = True  # the other side may not learn of it
            process.member.end_following()
        elif kind == "loss":
            world.loss = 0.3
            world.after(seconds, lambda: setattr(world, "loss", 0.0))
        elif kind == "full":
            process.fill_disk(True)
            world.after(seconds, lambda: process.fill_disk(False))
        elif kind == "garble":
            process.garble = 0.2
            world.after(seconds, lambda: setattr(process, "garble", 0.0))
        elif kind == "eio":
            process.fail_disk()
            world.after(seconds, lambda: self._kill(server, server.kill, 1.0) if server.process is process else None)

    # Checks

    def _check_queries(self) -> None:
        """A copy that answers shows no document whose deletion was acknowledged longer ago than it may lag."""
        latest = self.world.now - MAX_LAG - 0.5
        gone = {name for name, at in self.history.deleted.items() if at is not None and at < latest}
        for each in self.servers:
            if each.process is None or not gone:
                continue
            try:
                each.process.member.require_fresh()
            except SuffolkError:
                continue
            shown = gone.intersection(name for name, _ in each.process.documents().values())
            assert not shown, f"server {each.number} shows deleted documents at {self.world.now:.1f} s: {sorted(shown)}"
        if not self._done:
            self.world.after(0.5, self._check_queries)

    def _heal(self) -> None:
        self.world.cut.clear()
        self.world.loss = 0.0
        for each in self.servers:
            if each.process is not None:
                each.process.paused, each.process.garble = False, 0.0
                each.process.fill_disk(False)
                if each.process.writer.log.failure is not None:
                    each.kill()
            if each.process is None:
                each.start()
        for _ in range(int(HEAL_SECONDS)):
            self.world.run(1)
            if self._settled():
                return
        self._note_repaired()
        whole = [each for each in self.servers if not each.damaged]
        known = [
            each.process for each in whole if each.process and each.process.member.id in self.world.entry.value.in_sync
        ]
        if known and not any(each.process and each.process.feed.leads for each in self.servers):
            self.faults["accepted loss"] += 1  # an operator chooses a whole copy, where too many others are gone
            max(known, key=lambda each: each.writer.next_sequence).member.lead(accept_loss=True)
        for _ in range(int(HEAL_SECONDS)):
            self.world.run(1)
            if self._settled():
                return
        problems = [each.process.member.problem for each in self.servers if each.process]
        raise AssertionError(f"the copies do not come in sync again: {problems}; {self.world.entry}")

    def _settled(self) -> bool:
        processes = [each.process for each in self.servers if each.process is not None]
        found = [each.member.status() for each in processes]
        in_sync = set(self.world.entry.value.in_sync)
        leaders = [each for each in found if each.leads]
        return (
            len(leaders) == 1
            and {each.id for each in found} <= in_sync
            and len({(each.position, each.digest) for each in found}) == 1
        )

    def _check(self) -> None:
        processes = [each.process for each in self.servers if each.process is not None]
        found = [each.documents() for each in processes]
        assert all(each == found[0] for each in found), "copies in sync differ"
        names = Counter(name for name, _ in found[0].values())
        assert all(tokens == _tokens(name) for name, tokens in found[0].values()), "a document has other tokens"
        assert max(names.values(), default=1) == 1, f"documents are there twice: {names.most_common(3)}"
        history = self.history
        sure = {name for name, at in history.appended.items() if at is not None}
        lost = sure - history.deleted.keys() - names.keys()
        assert not lost, f"acknowledged documents are lost: {sorted(lost)}"
        back = {name for name, at in history.deleted.items() if at is not None} & names.keys()
        assert not back, f"deleted documents are back: {sorted(back)}"
        assert names.keys() <= history.appended.keys(), "a document was never appended"


def _tokens(name: str) -> list[int]:
    chooser = random.Random(name)
    return [chooser.randrange(VOCABULARY) for _ in range(1 + len(name))]


def simulate(seed: int) -> Simulation:
    """Run the history of ``seed``. Raises AssertionError: a promise is broken."""
    folder = Path(tempfile.mkdtemp(prefix="suffolk-simulation-", dir=_SHM if _SHM.is_dir() else None))
    try:
        simulation = Simulation(seed, folder)
        simulation.run()
        return simulation
    finally:
        shutil.rmtree(folder)
