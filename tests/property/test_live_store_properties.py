"""A live store keeps what a plain list of its documents keeps: groups, replacements, bounds, expiry, restarts and clocks."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffolk.build_index.compact import compact
from suffolk.build_index.delete import delete
from suffolk.datastore.documents import Document
from suffolk.serving.store.live_store import writer
from suffolk.serving.store.live_store.settings import LiveSettings
from suffolk.serving.store.live_store.store import LiveStore, create_live_store, open_live_store
from suffolk.serving.store.live_store.times import StoreClock
from tests.support import oracle
from tests.support.examples import examples
from tests.support.live_store_model import Clocks, Kept, StoreModel

VOCABULARY = 8
GROUPS = ["a", "b", "c"]
DAY = 86_400
TTL = 80
BOUND = 60
BASE = LiveSettings(durability="none", flush_tokens=0, threads=1)


class StoreUnderTest:
    """A store and its clocks. The tests call the background work."""

    def __init__(self, folder: Path, chosen: LiveSettings) -> None:
        self.path, self.settings, self.clocks = folder / "store", chosen, Clocks()
        self.appended = 0
        self.deleted = 0
        """Tokens. Those in published files count for the bound until the files are compacted."""
        with self._clocks():
            self.store = create_live_store(self.path, vocab_size=VOCABULARY, settings=chosen)
        self.store.maintenance_thread.close()

    def now(self) -> int:
        return self.store.writer.clock.now()

    def texts(self, data: st.DataObject, group: str | None) -> list[Kept]:
        """One or two new documents."""
        tokens = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=9)
        found = []
        for each in data.draw(st.lists(tokens, min_size=1, max_size=2), label="texts"):
            self.appended += 1
            found.append(Kept(f"{self.appended}", tuple(each), group, self.now()))
        return found

    def append(self, documents: list[Kept], replaces: bool = False) -> int:
        columns = [Document(each.name, {}, np.array(each.tokens)) for each in documents]
        return self.store.append_batch(columns, documents[0].group, replaces).replaced

    def names(self) -> list[str]:
        return [str(each.source) for each in self.store.documents()]

    def reopen(self) -> None:
        self.store.close()
        with self._clocks():
            self.store = open_live_store(self.path, self.settings)
        self.store.maintenance_thread.close()

    @contextmanager
    def _clocks(self) -> Iterator[None]:
        clocks = self.clocks
        with patch.object(
            writer, "StoreClock", lambda last: StoreClock(last, lambda: clocks.wall, lambda: clocks.steady)
        ):
            yield


@contextmanager
def opened(**changes: Any) -> Iterator[StoreUnderTest]:
    with tempfile.TemporaryDirectory() as folder:
        found = StoreUnderTest(Path(folder), replace(BASE, **changes))
        try:
            yield found
        finally:
            found.store.close()


@pytest.mark.parametrize("evict", ["age", "use"])
@given(data=st.data())
@examples(20)
def test_memory_holds_what_the_list_holds(evict: str, data: st.DataObject) -> None:
    bounds = {
        "max_tokens": data.draw(st.sampled_from([0, BOUND])),
        "max_group_tokens": data.draw(st.sampled_from([20, 1000])),
        "ttl_seconds": data.draw(st.sampled_from([0, TTL])),
    }
    with opened(evict=evict, **bounds) as it:
        model = StoreModel(it.settings)
        for _ in range(data.draw(st.integers(5, 30), label="steps")):
            change(it, model, data)
            assert it.names() == [each.name for each in model.documents]
        check_queries(it.store, model)


def change(it: StoreUnderTest, model: StoreModel, data: st.DataObject) -> None:
    kinds = ["append"] * 6 + ["replace", "query", "delete", "delete group", "wait", "evict", "evict", "reopen", "jump"]
    kind = data.draw(st.sampled_from(kinds), label="kind")
    group = data.draw(st.sampled_from(GROUPS if kind != "append" else [None, *GROUPS]), label="group")
    if kind in ("append", "replace"):
        texts = it.texts(data, group)
        assert it.append(texts, kind == "replace") == model.append(texts, kind == "replace")
    elif kind == "query":
        it.store.lookup([1], group=group)
        model.use(group)
    elif kind == "delete" and model.documents:
        name = data.draw(st.sampled_from(model.documents), label="document").name
        assert it.store.delete(ids=[name]).documents == 1
        model.remove(lambda each: each.name == name)
    elif kind == "delete group" and model.size(group):
        it.store.delete(group=group)
        model.remove(lambda each: each.group == group)
    elif kind == "wait":
        it.clocks.advance(data.draw(st.integers(1, TTL), label="seconds"))
    elif kind == "evict":
        it.store.maintenance.work()
        model.evict(it.now())
    elif kind == "reopen":
        if data.draw(st.booleans(), label="scrub"):
            it.store.scrub()
        it.reopen()
        model.reopen()
    elif kind == "jump":
        it.clocks.wall += data.draw(st.sampled_from([-DAY, DAY]), label="jump")


def check_queries(store: LiveStore, model: StoreModel) -> None:
    every = [each.tokens for each in model.documents]
    for token in range(VOCABULARY):
        assert store.lookup([token], scope="store") == oracle.lookup(every, [token], 16, 1)
        for group in GROUPS:
            texts = [each.tokens for each in model.documents if each.group == group]
            assert store.lookup([token], group=group, scope="group") == oracle.lookup(texts, [token], 16, 1)


@given(data=st.data())
@examples(10)
def test_published_documents_go_by_their_age_and_size(data: st.DataObject) -> None:
    bound, ttl = data.draw(st.sampled_from([(BOUND, 0), (0, TTL), (BOUND, TTL)]), label="bounds")
    with opened(max_tokens=bound, ttl_seconds=ttl) as it:
        there: list[Kept] = []
        for _ in range(data.draw(st.integers(5, 40), label="steps")):
            kind = data.draw(
                st.sampled_from(["append"] * 6 + ["flush", "flush", "delete", "wait", "other"]), label="kind"
            )
            if kind == "append":
                there += (texts := it.texts(data, None))
                it.append(texts)
            elif kind == "delete" and there:
                gone = data.draw(st.sampled_from(there), label="document")
                it.store.delete(ids=[gone.name])
                it.deleted += len(gone.tokens)
                there.remove(gone)
            elif kind == "flush":
                it.store.flush()
            elif kind == "wait":
                it.clocks.advance(data.draw(st.integers(1, TTL), label="seconds"))
            elif kind == "other":
                there = change_from_outside(it, there, data)
            there = check_eviction(it, there)


def change_from_outside(it: StoreUnderTest, there: list[Kept], data: st.DataObject) -> list[Kept]:
    """A restart, a jump of the clock, a rewrite of the log, or another process that deletes or compacts."""
    kind = data.draw(st.sampled_from(["reopen", "jump", "scrub", "delete", "compact"]), label="other")
    published = it.store.stats().published_documents
    if kind == "reopen":
        it.reopen()
    elif kind == "jump":
        it.clocks.wall += data.draw(st.sampled_from([-DAY, DAY]), label="jump")
    elif kind == "scrub":
        it.store.scrub()
    elif kind == "delete" and published:
        delete(it.path, [there[0].name], threads=1)
        it.deleted += len(there[0].tokens)
        there = there[1:]
    elif kind == "compact" and published:
        compact(it.path, threads=1)
    it.store.refresh()
    return there


def check_eviction(it: StoreUnderTest, there: list[Kept]) -> list[Kept]:
    """Run the background work; return the documents that are left: the newest ones, neither too many nor too few."""
    it.store.maintenance.work()
    names, now = it.names(), it.now()
    left = there[len(there) - len(names) :]
    assert names == [each.name for each in left]
    tokens, ttl, bound = sum(len(each.tokens) for each in left), it.settings.ttl_seconds, it.settings.max_tokens
    if bound:
        assert tokens <= bound
    if ttl:
        assert all(now - each.time <= ttl + ttl // 8 for each in left)
    for each in there[: len(there) - len(left)]:
        full = bound and sum(len(one.tokens) for one in there) + it.deleted > bound
        assert full or (ttl and now - each.time > ttl)
    if bound and len(left) < len(there) and not ttl:
        assert tokens + it.deleted >= bound - bound // 16 - bound // 8 - 9 * 2
    return left
