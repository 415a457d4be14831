"""Random changes of a store with copies, while servers are killed, and what must be there afterwards."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import numpy as np

from suffolk.datastore.documents import Document
from suffolk.datastore.errors import SuffolkError, Unavailable
from suffolk.serving.clients.remote_datastore import RemoteDatastore, connect
from tests.support.live_work import tokens_of

GROUPS = 3


class Expected:
    """What one writer's changes left: documents that must be there, and those that may be."""

    def __init__(self) -> None:
        self.sure: set[str] = set()
        self.unsure: set[str] = set()
        self.group_of: dict[str, str | None] = {}
        self.acknowledged = self.refused = self.unknown = 0

    def note(self, appended: Sequence[str], removed: Iterable[str], outcome: str) -> None:
        """A change was acknowledged, refused, or its outcome is unknown."""
        gone = set(removed)
        if outcome == "acknowledged":
            self.acknowledged += 1
            self.sure = (self.sure - gone) | set(appended)
            self.unsure -= gone
        elif outcome == "unknown":
            self.unknown += 1
            self.unsure |= set(appended) | (self.sure & gone)
            self.sure -= gone
        else:
            self.refused += 1

    def check(self, found: Sequence[str]) -> None:
        """Assert that ``found``, the names of the writer's documents, fit."""
        assert len(set(found)) == len(found), "a document is there twice"
        assert not (lost := self.sure - set(found)), f"acknowledged documents are lost: {sorted(lost)}"
        assert not (extra := set(found) - self.sure - self.unsure), f"removed documents are there: {sorted(extra)}"


class Writer:
    """A thread that changes the store through whichever server takes changes. Its documents are named after it."""

    def __init__(self, number: int, urls: Sequence[str], seed: int) -> None:
        self.number = number
        self.expected = Expected()
        self.longest_wait = 0.0
        self._urls = urls
        self._chooser = random.Random(f"{seed}-{number}")
        self._stopped = threading.Event()
        self._clients: dict[str, RemoteDatastore] = {}
        self._count = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread after its current change."""
        self._stopped.set()
        self._thread.join()
        for client in self._clients.values():
            client.close()

    def _run(self) -> None:
        while not self._stopped.is_set():
            appended, removed, change = self._choose()
            begun = time.monotonic()
            self.expected.note(appended, removed, self._try(change))
            self.longest_wait = max(self.longest_wait, time.monotonic() - begun)

    def _choose(self) -> tuple[list[str], list[str], Callable[[RemoteDatastore], object]]:
        """The documents that a change appends and removes, and the change."""
        kind = self._chooser.choice(["append", "append", "group", "replace", "delete"])
        expected, known = self.expected, sorted(self.expected.sure)
        if kind == "delete" and known:
            name = self._chooser.choice(known[-20:])
            return [], [name], lambda store: store.delete(ids=[name])
        self._count += 1
        name = f"{self.number}-{self._count}"
        group = None if kind == "append" else f"{self.number}-{self._chooser.randrange(GROUPS)}"
        expected.group_of[name] = group
        old = [each for each in expected.sure | expected.unsure if group and expected.group_of[each] == group]
        removed = old if kind == "replace" else []
        document = Document(name, {}, np.array(tokens_of(name)))
        return [name], removed, lambda store: store.append_batch([document], group, replace=kind == "replace")

    def _try(self, change: Callable[[RemoteDatastore], object]) -> str:
        """Make a change at the first server that takes it. Only a server that changed nothing is followed by another one."""
        while not self._stopped.is_set():
            for url in self._urls:
                with suppress(SuffolkError):
                    client = self._client(url)
                    try:
                        change(client)
                    except Unavailable as error:
                        if error.change == "none":
                            continue
                        return "unknown"
                    except SuffolkError:
                        return "unknown"
                    return "acknowledged"
            time.sleep(0.02)
        return "refused"

    def _client(self, url: str) -> RemoteDatastore:
        if url not in self._clients:
            self._clients[url] = connect(url, 10.0)
        return self._clients[url]
