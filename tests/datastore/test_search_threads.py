"""Tests batches on several threads: equal answers, errors, and processes that fork in between."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest

from suffolk.datastore.datastore import Datastore, open_datastore
from suffolk.datastore.errors import InvalidArgument
from tests.support.stores import make_store
from tests.support.waiting import until

GENERATOR = np.random.default_rng(0)
DOCUMENTS = GENERATOR.integers(0, 20, (300, 60)).tolist()
CONTEXTS = GENERATOR.integers(0, 20, (100, 12)).tolist()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    make_store(tmp_path / "store", [DOCUMENTS[:100], DOCUMENTS[100:]], vocab_size=20).close()
    return tmp_path / "store"


def draft(store: Datastore, count: int) -> list[tuple[list[int], list[int], int]]:
    trees = store.draft_batch(CONTEXTS[:count], max_nodes=[number % 40 for number in range(count)])
    return [(tree.tokens.tolist(), tree.parents.tolist(), tree.match_count) for tree in trees]


def threads() -> set[str]:
    return set(os.listdir("/proc/self/task"))


def started_since(before: set[str]) -> int:
    return len(threads() - before)


@pytest.mark.parametrize("count", [0, 1, 3, 8, 9, 33, 100])
def test_answers_do_not_depend_on_threads(path: Path, count: int) -> None:
    with open_datastore(path, threads=1) as one, open_datastore(path, threads=4) as four:
        assert draft(four, count) == draft(one, count) == [draft_alone(one, number) for number in range(count)]
        assert four.lookup_batch(CONTEXTS[:count]) == [one.lookup(context) for context in CONTEXTS[:count]]


def draft_alone(store: Datastore, number: int) -> tuple[list[int], list[int], int]:
    tree = store.draft(CONTEXTS[number], max_nodes=number % 40)
    return tree.tokens.tolist(), tree.parents.tolist(), tree.match_count


def test_threads_start_with_the_first_large_batch(path: Path) -> None:
    """Two kinds of threads are not counted: those of earlier tests that end meanwhile, and the one that reads the directory."""
    before = threads()
    with open_datastore(path, threads=4) as store:
        store.draft_batch(CONTEXTS[:3])
        until(lambda: started_since(before) == 0)
        store.draft_batch(CONTEXTS)
        until(lambda: started_since(before) == 3)


def test_a_caller_bound_to_one_core_gets_no_threads(path: Path) -> None:
    before, cores = threads(), os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        with open_datastore(path) as store:
            store.draft_batch(CONTEXTS)
            until(lambda: started_since(before) == 0)
    finally:
        os.sched_setaffinity(0, cores)


def test_many_callers_share_the_threads(path: Path) -> None:
    with open_datastore(path, threads=3) as store:
        expected = draft(store, 50)
        answers: list[object] = []
        callers = [
            threading.Thread(target=lambda: answers.extend(draft(store, 50) for _ in range(20))) for _ in range(6)
        ]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        assert answers == [expected] * 120


@pytest.mark.parametrize("used_before", [False, True])
def test_a_forked_child_gets_answers_and_ends(path: Path, used_before: bool) -> None:
    """The child's copy of the pool has no threads.

    A lock of the pool may be held by a thread that does not exist in the child.
    """
    with open_datastore(path, threads=4) as store:
        expected = draft(store if used_before else open_datastore(path, threads=1), 100)
        child = os.fork()
        if child == 0:
            same = draft(store, 100) == expected
            store.close()
            os._exit(0 if same else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert draft(store, 100) == expected


@pytest.mark.parametrize("threads", [-1, 1025])
def test_bad_numbers_of_threads_are_refused(path: Path, threads: int) -> None:
    with pytest.raises(InvalidArgument, match=rf"threads is {threads}; it must be between 0 and 1024"):
        open_datastore(path, threads=threads)


def test_contexts_may_be_rows_of_an_array(path: Path) -> None:
    """Regression: a row lived only while the next one was made, so that freed memory was read."""
    rows = np.array(CONTEXTS)
    with open_datastore(path) as store:
        for _ in range(20):
            assert store.lookup_batch(rows) == [store.lookup(context) for context in CONTEXTS]  # type: ignore[arg-type]
