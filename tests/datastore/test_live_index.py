"""Live indexes: bad input, threads, and merges of many tokens."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from suffolk.datastore import _native
from suffolk.datastore.errors import InvalidArgument, NotFound, SuffolkError, Unavailable
from tests.support import oracle
from tests.support.brute_force import assert_same_tree
from tests.support.live_model import LiveModel, Text, append, paths

BOUNDS = {"max_match": 6, "min_match": 1, "max_depth": 4, "max_nodes": 24}
VOCAB_SIZE = 1000

BAD_CHANGES: dict[str, tuple[Callable[[_native.LiveIndex], object], type[SuffolkError], str]] = {
    "no document": (lambda index: append(index, []), InvalidArgument, "no document to append"),
    "an empty document": (
        lambda index: append(index, [Text((1,)), Text(())]),
        InvalidArgument,
        "document 1 has no tokens",
    ),
    "an id out of range": (
        lambda index: append(index, [Text((1, VOCAB_SIZE))]),
        InvalidArgument,
        "token id 1000 in document 0 is out of range; the vocabulary has 1000 ids",
    ),
    "a number that is used": (
        lambda index: append(index, [Text((1,))], sequences=[2]),
        InvalidArgument,
        "document number 2; numbers must rise and be at least 3",
    ),
    "numbers that fall": (
        lambda index: append(index, [Text((1,)), Text((2,))], sequences=[9, 8]),
        InvalidArgument,
        "document number 8; numbers must rise",
    ),
    "replacing an unknown document": (lambda index: append(index, [Text((1,))], [7]), NotFound, "document number 7"),
    "removing an unknown document": (lambda index: remove(index, 1, 7), NotFound, "document number 7 is not in memory"),
    "lengths that do not fit": (lambda index: append_columns(index, lengths=[3]), InvalidArgument, "more than the 2"),
    "tokens that are left": (
        lambda index: append_columns(index, lengths=[1]),
        InvalidArgument,
        "add up to 1 of 2 tokens",
    ),
    "a missing group": (lambda index: append_columns(index, groups=[]), InvalidArgument, "groups has 0 entries for 1"),
    "an unknown scope": (
        lambda index: index.lookup([[1]], 4, 1, numbers(1), "mine"),
        InvalidArgument,
        "scope is 'mine'; it must be store, group or group_first",
    ),
    "no groups": (lambda index: index.lookup([[1]], 4, 1, None, "group"), InvalidArgument, "no groups are given"),
    "too few groups": (
        lambda index: index.lookup([[1]], 4, 1, numbers(), "group"),
        InvalidArgument,
        "groups has 0 keys for 1 contexts",
    ),
}


def numbers(*values: int) -> np.ndarray:
    return np.array(values, np.uint64)


def remove(index: _native.LiveIndex, *sequences: int) -> int:
    return index.remove(numbers(*sequences))


def append_columns(index: _native.LiveIndex, lengths: list[int] | None = None, groups: list[int] | None = None) -> int:
    return index.append(
        np.array([1, 2], np.uint32),
        numbers(*([2] if lengths is None else lengths)),
        numbers(*([0] if groups is None else groups)),
        [b""],
        np.zeros(1, np.int64),
    )


@pytest.mark.parametrize("name", BAD_CHANGES)
def test_a_bad_change_is_refused_and_changes_nothing(name: str, tmp_path: Path) -> None:
    change, error, message = BAD_CHANGES[name]
    model = LiveModel(tmp_path, VOCAB_SIZE)
    model.append([Text((1, 2, 3), 1, b"a"), Text((2, 3, 4))])
    with pytest.raises(error, match=message):
        change(model.index)
    model.check_documents()
    model.check([2, 3], BOUNDS, 1)
    assert append(model.index, [Text((5,))]) == 3


@pytest.mark.parametrize(("vocab_size", "order_depth"), [(0, 64), (2**32 - 1, 64), (10, 0), (10, 1025)])
def test_a_shape_out_of_range_is_refused(vocab_size: int, order_depth: int) -> None:
    with pytest.raises(InvalidArgument, match="it must be 1 to"):
        _native.LiveIndex(vocab_size, order_depth, 1)


def test_files_of_another_shape_are_refused(tmp_path: Path) -> None:
    other = LiveModel(tmp_path, VOCAB_SIZE + 1)
    other.append([Text((1, 2))])
    model = LiveModel(tmp_path, VOCAB_SIZE)
    model.append([Text((1, 2))])
    with pytest.raises(InvalidArgument, match="has a vocabulary of 1001 ids"):
        model.index.rebase([other._write([Text((1, 2))])], [], [], 1)
    model.check_documents()


def test_a_closed_index_refuses_all_calls() -> None:
    index = _native.LiveIndex(VOCAB_SIZE, 64, 1)
    append(index, [Text((1, 2))])
    index.close()
    index.close()
    calls: list[Callable[[], object]] = [
        lambda: append(index, [Text((1,))]),
        lambda: remove(index, 1),
        lambda: index.rebase([], [], [], 1),
        lambda: index.drop_before(2),
        lambda: index.lookup([[1]], 4, 1),
        lambda: index.draft([[1]], 4, 1, 4, [4], 1),
        lambda: index.occurrences([1], 1, 1),
        lambda: index.documents(0, 1),
        lambda: index.group_documents(1),
        lambda: index.group_stats(1),
        lambda: index.stats(),
    ]
    for call in calls:
        with pytest.raises(Unavailable, match="the live index is closed; open it again"):
            call()


def test_groups_are_counted_and_listed(tmp_path: Path) -> None:
    model = LiveModel(tmp_path, VOCAB_SIZE)
    model.append([Text((1, 2), 5), Text((3,), 6), Text((4, 5, 6), 5)])
    model.append([Text((7,), 5)], removed=[1])
    assert [column.tolist() for column in model.index.group_documents(5)] == [[3, 4], [3, 1]]
    assert model.index.group_stats(5) == {"documents": 2, "tokens": 4, "oldest_sequence": 3, "newest_sequence": 4}
    assert model.index.group_stats(9) == {"documents": 0, "tokens": 0, "oldest_sequence": 0, "newest_sequence": 0}


def test_contexts_of_several_groups_are_answered_in_order(tmp_path: Path) -> None:
    model = LiveModel(tmp_path, VOCAB_SIZE)
    model.append([Text((1, 2, place % 5, place), 1 + place % 3) for place in range(60)])
    keys = numbers(*(place * 7 % 5 for place in range(40)))  # 4 has no document, 0 is no group
    asked = ([[1, 2, place % 5] for place in range(40)], 6, 1)
    for scope in ("group", "group_first"):
        trees = model.index.draft(*asked, 4, [9] * 40, 1, keys, scope)
        matches = model.index.lookup(*asked, keys, scope)
        for place, context in enumerate(asked[0]):
            key = keys[place : place + 1]
            [tree] = model.index.draft([context], 6, 1, 4, [9], 1, key, scope)
            assert_same_tree(tree, trees[place])
            assert model.index.lookup([context], 6, 1, key, scope) == [matches[place]]


def test_removals_out_of_order_survive_a_flush(tmp_path: Path) -> None:
    model = LiveModel(tmp_path, VOCAB_SIZE)
    model.append([Text((1, 2, 3, place)) for place in range(20)])
    model.remove([8])
    model.remove([5])
    model.index.settle()
    assert model.index.stats()["deletions"] == 1
    model.flush(6)
    model.check([1, 2], BOUNDS, 1)
    model.check_documents()


def test_occurrences_are_in_files_and_in_memory(tmp_path: Path) -> None:
    model = LiveModel(tmp_path, VOCAB_SIZE)
    model.append([Text((1, 2, 3)), Text((9, 1, 2, 4, 5), origin=b"b"), Text((1, 2))])
    model.flush(1)
    model.remove([3])
    filed, live = model.index.occurrences([1, 2], 10, 3)
    assert filed[0] is not None
    assert (filed[0].read_tokens(filed[2], 3).tolist(), filed[1]) == ([1, 2, 3], 0)
    assert live[:4] == (None, 2, 1, b"b")
    assert live[4].tolist() == [1, 2, 4]


def test_documents_of_groups_may_stay_when_others_are_flushed(tmp_path: Path) -> None:
    model = LiveModel(tmp_path, VOCAB_SIZE)
    for batch in range(12):  # segments of documents with and without groups, removed and not, merged and not
        model.append([Text((1, 2, batch, place), place % 3) for place in range(9)])
        model.remove([number for number in model.memory if number % 7 == 5])
        if batch % 4 == 3:
            model.flush(max(model.memory) - 12, grouped_stay=True)
            model.remove([number for number in model.memory if number % 11 == 3])
        model.check_documents()
        for group in range(1, 3):
            model.check([1, 2], BOUNDS, group)


def test_numbers_continue_after_given_ones_and_after_a_rebase() -> None:
    index = _native.LiveIndex(VOCAB_SIZE, 64, 1)
    assert append(index, [Text((1,)), Text((2,))], sequences=[5, 9]) == 5
    assert append(index, [Text((3,))]) == 10
    index.rebase([], [], [], 20)
    assert append(index, [Text((4,))]) == 21
    assert index.documents(0, 9)[0].tolist() == [21]


def test_each_answer_is_that_after_some_prefix_of_the_appends() -> None:
    """Three threads append, each replacing older documents of its own; two threads draft meanwhile."""
    index = _native.LiveIndex(VOCAB_SIZE, 64, 2)
    contexts = [[1, 2], [3], [2, 1, 3]]
    done: dict[int, tuple[list[Text], list[int]]] = {}
    answers: list[list[tuple[list[tuple[tuple[int, ...], int]], int]]] = [[] for _ in contexts]
    writing = threading.Event()
    writing.set()

    def write(seed: int) -> None:
        random = np.random.default_rng(seed)
        own: list[int] = []
        for _ in range(25):
            texts = [Text(tuple(random.integers(1, 4, 8).tolist())) for _ in range(int(random.integers(1, 4)))]
            removed = [own.pop(int(random.integers(len(own)))) for _ in range(min(len(own), int(random.integers(3))))]
            first = append(index, texts, removed)
            own.extend(range(first, first + len(texts)))
            done[first] = (texts, removed)

    def read() -> None:
        while writing.is_set():
            for place, context in enumerate(contexts):
                [tree] = index.draft([context], 6, 1, 3, [12], 1)
                answers[place].append((paths(tree), tree.match_count))

    with ThreadPoolExecutor(5) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        for writer in [pool.submit(write, seed) for seed in range(3)]:
            writer.result()
        writing.clear()
        for reader in readers:
            reader.result()

    live: dict[int, tuple[int, ...]] = {}
    possible: list[list[object]] = [[([], 0)] for _ in contexts]
    for first in sorted(done):
        texts, removed = done[first]
        for number in removed:
            del live[number]
        live |= {first + place: text.tokens for place, text in enumerate(texts)}
        for place, context in enumerate(contexts):
            tree = oracle.draft(list(live.values()), context, 6, 1, 3, 12)
            possible[place].append((tree, oracle.lookup(list(live.values()), context, 6, 1)[1]))
    for place in range(len(contexts)):
        assert all(answer in possible[place] for answer in answers[place])


def test_many_tokens_are_searched_like_one_file(tmp_path: Path) -> None:
    """Appends, removals, flushes and merges in the background; readers count a marker meanwhile."""
    random = np.random.default_rng(5)
    marker = VOCAB_SIZE - 1
    model = LiveModel(tmp_path, VOCAB_SIZE)
    seen: list[int] = []
    writing = threading.Event()
    writing.set()

    def read() -> None:
        while writing.is_set():
            [(_, count)] = model.index.lookup([[marker]], 1, 1)
            seen.append(count)

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read)
        for step in range(120):
            batch = [
                Text((marker, *np.minimum(random.zipf(1.4, int(size)), VOCAB_SIZE - 2).tolist()), step % 7)
                for size in random.integers(1, 4000, 3)
            ]
            old = sorted(model.memory)[::9]
            model.append(batch, removed=old[:3])  # at most as many as are appended: the number never falls
            assert model.index.stats()["segments"] <= 16
            if step in (50, 90):
                model.flush(sorted(model.memory)[len(model.memory) // 2])
        writing.clear()
        reader.result()
    assert seen == sorted(seen)
    model.check_documents()
    documents = [Text(tuple(text)) for text in model.texts()]
    searcher = _native.Searcher([model._write(documents)])
    contexts = [
        list(text[place : place + 12]) for text in model.texts()[::4] for place in range(0, len(text) - 12, 997)
    ]
    asked = (contexts, 12, 1, 8, [40] * len(contexts), 1)
    for ours, theirs in zip(model.index.draft(*asked), searcher.draft(*asked), strict=True):
        assert_same_tree(ours, theirs)
    model.index.settle()
    assert model.index.lookup(contexts, 64, 1) == searcher.lookup(contexts, 64, 1)
