"""A live store that is changed by a process, killed, and checked, again and again."""

from __future__ import annotations

from pathlib import Path

from tests.support.fork_server import Ending, ForkServer
from tests.support.live_work import THREADS, Expected, prove_live

WORK = "tests.support.live_work:work"
CHANGES = 50
"""Changes of each thread of the process."""


class KilledStore:
    """A store in ``folder``, in one of ``tests.support.live_work.MODES``."""

    def __init__(self, server: ForkServer, folder: Path, mode: str) -> None:
        self.server = server
        self.store = folder / "store"
        self.journals = folder / "journals"
        self.journals.mkdir(parents=True)
        self.mode = mode
        self.expected = [Expected() for _ in range(THREADS)]
        self.rounds = 0

    def run(self, failpoint: str | None = None, kill_after: float | None = None, changes: int = CHANGES) -> Ending:
        """Change the store in a process that is killed unless it ends first, and check what is left."""
        self.rounds += 1
        arguments = [str(self.store), str(self.journals), str(self.rounds), str(changes), self.mode]
        ending = self.server.run(arguments, failpoint=failpoint, kill_after=kill_after, function=WORK)
        assert ending.code in (0, -9), ending.errors
        self.expected = prove_live(self.store, self.journals, self.expected, self.mode)
        return ending
