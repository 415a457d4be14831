"""Random changes of a live store by two threads, for processes that are killed meanwhile, and the check of what is left.

A thread writes a line to its journal before and after each change. So the parent knows which changes were acknowledged, and which
one, at most, was running.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.documents import Document
from suffolk.datastore.errors import NotFound
from suffolk.serving.store.live_store import times, writer
from suffolk.serving.store.live_store.check_log import check_log
from suffolk.serving.store.live_store.contents import live_pages, unpack_origin
from suffolk.serving.store.live_store.identity import is_free
from suffolk.serving.store.live_store.settings import LiveSettings
from suffolk.serving.store.live_store.store import LiveStore, create_live_store, open_live_store

VOCABULARY = 64
THREADS = 2
GROUPS = 3
BOUND = 2000
"""Tokens of a bounded store."""
LEAST = BOUND // 4 // 30
"""A bounded store keeps this many documents, of at most 30 tokens."""


@dataclass
class Expected:
    """What one thread's documents are, by name: the group of each, or None; in the order in which they were appended. And
    whether some were evicted."""

    documents: dict[str, str | None] = field(default_factory=dict)
    evicted: bool = False

    def apply(self, change: dict[str, Any]) -> Expected:
        """The documents after ``change``."""
        left = {
            name: group
            for name, group in self.documents.items()
            if name not in change["deleted"] and (group is None or group != change["replaced"])
        }
        return Expected(left | dict.fromkeys(change["appended"], change["group"]), self.evicted)


SMALL = LiveSettings(durability="always", threads=1, flush_tokens=600)
MODES = {
    "unbounded": SMALL,
    "bounded memory": replace(SMALL, durability="interval", flush_tokens=0, max_tokens=BOUND),
    "bounded files": replace(SMALL, durability="none", max_tokens=BOUND),
}
"""Settings of the store, small, so that all background work is frequent. A bounded one is only appended to, and its oldest
documents go."""


def tokens_of(name: str) -> list[int]:
    """The tokens of a document: its name's digits, and others that depend on them."""
    thread, number = map(int, name.split("-"))
    digits = [40 + thread, *(int(digit) for digit in f"{number:06}")]
    return digits + [20 + (number * step) % 17 for step in range(1, 2 + number % 23)]


def work(arguments: Sequence[str]) -> int:
    """The killed process: ``STORE JOURNALS SEED CHANGES MODE``."""
    path, folder, seed, changes, mode = Path(arguments[0]), Path(arguments[1]), *arguments[2:]
    writer.CHECKPOINT_BYTES = 1 << 12
    times.DELETED_SECONDS = 0.1
    chosen = MODES[mode]
    store = (
        create_live_store(path, vocab_size=VOCABULARY, settings=chosen)
        if is_free(path)
        else open_live_store(path, chosen)
    )
    store.writer.log.file_bytes = 1 << 12
    threads = [
        threading.Thread(target=_change, args=(store, folder, number, int(seed), int(changes)))
        for number in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.close()
    return 0


def _change(store: LiveStore, folder: Path, thread: int, seed: int, changes: int) -> None:
    bounded, flushed = store.settings.max_tokens > 0, store.settings.flush_tokens > 0
    try:
        journal = os.open(folder / f"{thread}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        chooser = random.Random(f"{seed}-{thread}")
        mine = [each.source for each in store.documents() if each.source and each.source.startswith(f"{thread}-")]
        for number in range(changes):
            change = _choose(chooser, thread, seed * 1000 + number, mine, bounded)
            if chooser.random() < 0.04:
                if flushed and chooser.random() < 0.7:
                    store.flush()
                else:
                    with store._files.lock:
                        store.writer.checkpoint(force=True)
            os.write(journal, (json.dumps(change) + "\n").encode())
            _apply(store, change)
            os.write(journal, b"acknowledged\n")
            mine = [name for name in mine if name not in change["deleted"]] + change["appended"]
    except BaseException as error:  # noqa: BLE001  the process ends with any error of a thread
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.stderr.flush()
        os._exit(70)


def _choose(chooser: random.Random, thread: int, number: int, mine: list[str], bounded: bool) -> dict[str, Any]:
    kind = "append" if bounded else chooser.choice(["append"] * 4 + ["group", "replace", "delete"])
    count = chooser.choice([1, 1, 3])
    change: dict[str, Any] = {"appended": [], "deleted": [], "group": None, "replaced": None}
    if kind == "delete" and mine:
        return change | {"deleted": [chooser.choice(mine[-20:])]}
    change["appended"] = [f"{thread}-{number * 4 + place}" for place in range(count)]
    if kind in ("group", "replace"):
        change["group"] = f"{thread}-{chooser.randrange(GROUPS)}"
        change["replaced"] = change["group"] if kind == "replace" else None
    return change


def _apply(store: LiveStore, change: dict[str, Any]) -> None:
    if change["deleted"]:
        store.delete(ids=change["deleted"])
        return
    documents = [Document(name, {}, np.array(tokens_of(name))) for name in change["appended"]]
    store.append_batch(documents, change["group"], replace=change["replaced"] is not None)


def prove_live(path: Path, folder: Path, before: Sequence[Expected], mode: str) -> list[Expected]:
    """Assert that the store holds every acknowledged change, at most one more of each thread, and nothing twice.

    Returns what is there, and empties the journals.
    """
    if not (path / "live" / "identity.json").exists():
        assert not list(folder.iterdir())
        return list(before)
    bounded = MODES[mode].max_tokens > 0
    check_log(path)
    with open_live_store(path, MODES[mode]) as store:
        found = [(each.source, each.tokens.tolist()) for each in store.documents()]
        names = [str(name) for name, _ in found]
        assert len(set(names)) == len(names), "a document is there twice"
        assert all(tokens == tokens_of(str(name)) for name, tokens in found), "a document has other tokens"
        _check_counts(store, [tokens for _, tokens in found])
        groups = {name: group for group, members in _groups(store).items() for name in members}
        after = []
        for thread in range(THREADS):
            mine = {name: groups.get(name) for name in names if name.startswith(f"{thread}-")}
            after.append(_check_thread(folder / f"{thread}.jsonl", mine, before[thread], bounded))
        assert not bounded or len(found) >= LEAST or not any(each.evicted for each in after), "too much was evicted"
    with suppress(NotFound), open_datastore(path) as published:
        published.verify("full")
    for journal in folder.iterdir():
        journal.unlink()
    return after


def _check_counts(store: LiveStore, documents: list[list[int]]) -> None:
    for token in range(0, VOCABULARY, 7):
        expected = sum(tokens.count(token) for tokens in documents)
        assert store.lookup([token], scope="store").count == expected, f"token {token} is counted wrongly"


def _groups(store: LiveStore) -> dict[str, list[str]]:
    """The names of the documents in each group."""
    found: dict[str, list[str]] = {}
    for page in live_pages(store._live, 1 << 60):
        for origin in map(unpack_origin, page.origins):
            if origin.group is not None:
                found.setdefault(origin.group, []).append(str(origin.source))
    return found


def _check_thread(journal: Path, found: dict[str, str | None], before: Expected, bounded: bool) -> Expected:
    lines = journal.read_text().splitlines() if journal.exists() else []
    acknowledged, running = before, None
    for line in lines:
        if line == "acknowledged":
            assert running is not None
            acknowledged, running = acknowledged.apply(running), None
        else:
            running = json.loads(line)
    states = [acknowledged, *([acknowledged.apply(running)] if running is not None else [])]
    if bounded:  # the newest ones are there
        states = [
            Expected(dict(list(state.documents.items())[len(state.documents) - len(found) :])) for state in states
        ]
    assert any(state.documents == found for state in states), (
        f"lost {sorted(set(states[0].documents) - set(found))}, and found {sorted(set(found) - set(states[-1].documents))}"
    )
    return Expected(found, evicted=before.evicted or len(found) < len(acknowledged.documents))
