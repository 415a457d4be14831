"""Tests prefetched drafts: requested contexts, used replies, and dropped replies."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from suffolk.datastore.context_query import ContextQuery
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import DeadlineExceeded, InvalidArgument, SuffolkError, Unavailable
from suffolk.datastore.retriever import AsyncRetriever
from suffolk.serving.decoding.drafters.hierarchy.load import StackLoader
from suffolk.serving.decoding.drafters.retrieval.datastore import DatastoreDrafter
from suffolk.serving.decoding.drafters.retrieval.inflight_call import InflightCall, likely_ends, subtree
from suffolk.serving.decoding.drafters.retrieval.limits import Limits, require_match
from suffolk.serving.decoding.drafters.retrieval.prefetch import DraftPrefetcher
from suffolk.serving.decoding.engine.costs.draft_budget import UNLIMITED, DraftBudget
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest
from suffolk.serving.decoding.engine.model.target import Target
from tests.support.brute_force import BruteForceRetriever, assert_same_tree
from tests.support.drafters import tree
from tests.support.later import LaterBruteForce
from tests.support.tiny_models import tiny_model

VOCAB = 6
LIMITS = Limits(max_match=4, min_match=1, max_depth=3)
LENGTHS = (4, 2)
DOCUMENT = [1, 2, 3, 4, 5, 1, 2, 3, 5, 0]


def request(tokens: list[int], number: int = 1, budget: DraftBudget = UNLIMITED) -> DraftRequest:
    return DraftRequest(number, np.asarray(tokens, np.int32), 64, budget=budget)


def endings(tokens: list[int]) -> list[np.ndarray]:
    return [np.asarray(tokens[-length:], np.int32) for length in LENGTHS]


def prefetcher(retriever: LaterBruteForce) -> DraftPrefetcher:
    return DraftPrefetcher(retriever, LIMITS)


def test_what_lies_below_a_token_is_the_draft_behind_it() -> None:
    rng = np.random.default_rng(5)
    known = 0
    for _ in range(200):
        documents = [rng.integers(0, 4, int(rng.integers(1, 30))).tolist() for _ in range(int(rng.integers(1, 4)))]
        store = BruteForceRetriever(documents, VOCAB)
        context = rng.integers(0, 4, int(rng.integers(1, 6))).tolist()
        nodes = int(rng.choice([3, 20, 1000]))
        (before,) = store.draft_batch([context[-3:]], 3, 1, 4, nodes)
        for token in range(4):
            expected = store.draft([*context, token][-4:], 4, 1, 3, 1000)
            found = subtree(before, token, 1000)
            follows = bool(np.any((before.parents == -1) & (before.tokens == token)))
            if follows and len(before) < nodes:
                assert_same_tree(found, expected)
                known += 1
            elif follows:  # a tree that was cut holds the first of them
                assert_same_tree(found, expected.head(len(found)))
            else:
                assert len(found) == 0
            assert_same_tree(subtree(before, token, 2), found.head(2))
    assert known > 100


def test_a_tree_without_sound_counts_tells_nothing() -> None:
    chain = tree([1, 2], [-1, 0])
    assert len(subtree(chain, 1, 9)) == 0
    lie = DraftTree(chain.tokens, chain.parents, chain.scores, chain.sources, np.zeros(2, np.uint64), 1, 1)
    assert len(subtree(lie, 1, 9)) == 0


def test_likely_ends_are_where_no_child_takes_the_chance() -> None:
    fork = tree([7, 8, 9, 7], [-1, 0, 0, -1], [0.7, 0.5, 0.1, 0.01])
    assert [path.tolist() for path in likely_ends(fork)] == [[7, 8], [], [7, 9], [7]]  # 0.5, 0.29, 0.1, 0.1
    assert [path.tolist() for path in likely_ends(DraftTree.empty())] == [[]]
    assert len(likely_ends(tree(list(range(9)), list(range(-1, 8)), [1 - 0.1 * node for node in range(9)]))) == 6


def test_a_prefetched_draft_needs_no_call() -> None:
    store = LaterBruteForce([DOCUMENT], VOCAB)
    early = prefetcher(store)
    early.prefetch([request([0, 1])], [tree([2], [-1], [0.9])], LENGTHS)
    assert store.later == [[[0, 1, 2], [2], [0, 1], [1]]]  # after 2 and after no token, one token shorter than needed
    ((longest, short),) = early.draft([request([0, 1, 2, 3])], [endings([0, 1, 2, 3])])
    assert_same_tree(longest, store.draft([0, 1, 2, 3], 4, 1, 3))
    assert_same_tree(short, store.draft([2, 3], 4, 1, 3))
    assert len(store.later) == 1
    assert early.stats() == {"prefetched": 1, "late": 0}


def test_drafts_are_prefetched_behind_an_id_that_only_the_target_knows() -> None:
    """Regression: one text with an id that the datastore does not know used to make the prefetch calls of all requests fail."""
    store = LaterBruteForce([DOCUMENT], VOCAB)
    drafter = DatastoreDrafter(store, VOCAB + 4, LIMITS, prefetch=True)
    texts = [[1, VOCAB, 2], [0, 1, 2]]
    drafter.prefetch([request(text, place) for place, text in enumerate(texts)], [DraftTree.empty()] * 2)
    drafts = drafter.propose([request([*text, 3], place) for place, text in enumerate(texts)])
    assert [len(each) > 0 for each in drafts] == [True, True]
    assert drafter.stats()["prefetched"] == 2
    drafter.prefetch([request([1, 2], 0)], [tree([VOCAB], [-1], [0.9])])
    assert not len(drafter.propose([request([1, 2, VOCAB], 0)])[0])
    assert drafter.stats()["failed"] == 0


def test_a_late_answer_is_dropped_and_none_is_asked_before_it_has_come() -> None:
    store = LaterBruteForce([DOCUMENT], VOCAB, prompt=False)
    early = prefetcher(store)
    early.prefetch([request([0, 1])], [DraftTree.empty()], LENGTHS)
    assert not any(map(len, early.draft([request([0, 1, 2])], [endings([0, 1, 2])])[0]))
    assert early.stats() == {"prefetched": 0, "late": 1}
    for _ in range(3):
        early.prefetch([request([0, 1, 2])], [DraftTree.empty()], LENGTHS)
        early.draft([request([0, 1, 2, 3])], [endings([0, 1, 2, 3])])
    assert len(store.later) == 1
    assert early.stats() == {"prefetched": 0, "late": 1}, "a call that was dropped is late once"
    store.answer()
    store.prompt = True
    early.prefetch([request([0, 1, 2])], [DraftTree.empty()], LENGTHS)
    assert any(map(len, early.draft([request([0, 1, 2, 3])], [endings([0, 1, 2, 3])])[0]))
    assert early.prefetched == 1


def test_a_failed_call_is_a_fault_until_a_prefetching_call_is_answered() -> None:
    store = LaterBruteForce([DOCUMENT], VOCAB)
    early = prefetcher(store)
    store.fault = DeadlineExceeded("stalled")
    early.prefetch([request([0, 1])], [DraftTree.empty()], LENGTHS)
    with pytest.raises(DeadlineExceeded):
        early.draft([request([0, 1, 2])], [endings([0, 1, 2])])
    for _ in range(3):
        with pytest.raises(Unavailable, match="drafts go on once one is answered"):
            early.draft([request([0, 1, 2])], [endings([0, 1, 2])])
    assert len(store.later) == 1
    store.fault = None
    early.prefetch([request([0, 1])], [DraftTree.empty()], LENGTHS)
    assert any(map(len, early.draft([request([0, 1, 2])], [endings([0, 1, 2])])[0]))


def test_the_datastore_drafter_counts_what_was_ahead() -> None:
    store = LaterBruteForce([DOCUMENT], VOCAB)
    drafter = DatastoreDrafter(store, VOCAB, LIMITS, prefetch=True)
    assert isinstance(store, AsyncRetriever)
    waiting = DatastoreDrafter(BruteForceRetriever([DOCUMENT], VOCAB), VOCAB, LIMITS)
    text = [5, 1, 2, 3, 4, 5, 1, 2, 3, 5, 0]
    drafter.prefetch([request(text[:1])], [DraftTree.empty()])
    for size in range(2, len(text)):
        step = request(text[:size])
        (ours,), (theirs,) = drafter.propose([step]), waiting.propose([step])
        assert set() < set(ours.tokens.tolist()) <= set(theirs.tokens.tolist())
        drafter.prefetch([step], [DraftTree.empty()])
        for each in (drafter, waiting):
            each.observe({1: np.asarray(text[size : size + 1], np.int32)})
    stats = drafter.stats()
    assert stats["prefetched"] > 5
    assert stats["failed"] == stats["late"] == 0
    store.fault = Unavailable("gone")
    store.healthy = False
    drafter.prefetch([request(text)], [DraftTree.empty()])
    assert len(drafter.propose([request([*text, 1])])[0]) == 0
    assert drafter.stats()["failed Unavailable"] == 1
    assert "late" not in waiting.stats()


def test_a_service_that_misses_its_deadline_is_waited_for_no_more_but_used_once_it_answers() -> None:
    """Regression: with files on disk, each trial of waiting used to take a third of a token's time.

    So 96 tokens were decoded without drafts.
    """
    store = LaterBruteForce([DOCUMENT], VOCAB)
    drafter = DatastoreDrafter(store, VOCAB, LIMITS)
    answered, waits = store.find_drafts, 0

    def misses(*asked: object) -> list[DraftTree]:
        nonlocal waits
        waits += 1
        time.sleep(0.004)
        raise DeadlineExceeded("no answer within 4 ms")

    step = request([0, 1, 2], budget=DraftBudget(token_seconds=0.01))
    store.find_drafts = misses  # type: ignore[method-assign, assignment]
    store.prompt = False
    for _ in range(10):
        assert not len(drafter.propose([step])[0])
        drafter.prefetch([step], [DraftTree.empty()])
    assert 1 <= waits <= 3
    store.find_drafts = answered  # type: ignore[method-assign]
    store.answer()
    drafter.prefetch([step], [DraftTree.empty()])
    store.answer()
    assert len(drafter.propose([request([0, 1, 2, 3], budget=DraftBudget(token_seconds=0.01))])[0])


def test_a_service_that_refuses_at_once_is_not_taken_for_a_near_one() -> None:
    store = LaterBruteForce([DOCUMENT], VOCAB)
    call = InflightCall(store, LIMITS)
    context = [(np.array([1, 2], np.int32), None)]
    for fault, times in ((Unavailable("gone"), 0), (DeadlineExceeded("late"), 1), (None, 1)):
        store.fault = fault
        call.send(context, 4)
        assert len(call.durations()) == times
        with suppress(SuffolkError):
            call.receive()
    for _ in range(20):
        call.send(context, 4)
    assert len(call.durations()) == 8  # after any time without calls


def test_a_call_holds_as_many_contexts_as_the_service_takes() -> None:
    store = LaterBruteForce([DOCUMENT], VOCAB)
    early = prefetcher(store)
    rng = np.random.default_rng(1)
    many = [request(rng.integers(0, VOCAB, 40).tolist(), number) for number in range(300)]
    early.prefetch(many, [DraftTree.empty()] * len(many), (16, 8, 4, 2))
    assert len(store.later[0]) == 256


class Fewer(LaterBruteForce):
    """Returns one tree too few."""

    def find_drafts(self, query: ContextQuery) -> list[DraftTree]:
        return super().find_drafts(query)[1:]


@pytest.mark.parametrize("early", [False, True])
def test_a_wrong_number_of_trees_is_a_fault_of_the_service(early: bool) -> None:
    drafter = DatastoreDrafter(Fewer([DOCUMENT], VOCAB), VOCAB, LIMITS, prefetch=early)
    drafter.prefetch([request([0, 1])], [DraftTree.empty()])
    assert [len(each) for each in drafter.propose([request([0, 1, 2])])] == [0]
    assert drafter.stats()["failed Internal"] == drafter.stats()["failed"] == 1


def test_drafts_deeper_than_a_service_takes_are_refused_at_the_start() -> None:
    message = "max_depth is 100; drafts of a draft service are at most 64 tokens deep; lower it"
    with pytest.raises(InvalidArgument, match=message):
        DatastoreDrafter(LaterBruteForce([DOCUMENT], VOCAB), VOCAB, Limits(max_depth=100))
    with pytest.raises(InvalidArgument, match=message):
        require_match(LaterBruteForce([DOCUMENT], VOCAB), "store", Limits(max_depth=100), "model", "ab" * 32)
    DatastoreDrafter(LaterBruteForce([DOCUMENT], VOCAB), VOCAB, Limits(max_depth=64))
    DatastoreDrafter(BruteForceRetriever([DOCUMENT], VOCAB), VOCAB, Limits(max_depth=100))


def test_a_drafter_without_prefetching_waits_for_every_answer() -> None:
    """Regression: in a hierarchy and in a replay, a slow service used to count as remote, and drafting stopped."""
    store = LaterBruteForce([DOCUMENT], VOCAB)
    [level] = StackLoader(Target.wrap(tiny_model()), retrievers=[store]).sources("datastore")
    answered = store.find_drafts

    def slow(*asked: Any, **options: Any) -> list[DraftTree]:
        time.sleep(0.004)
        return answered(*asked, **options)

    store.find_drafts = slow  # type: ignore[method-assign]
    step = request([0, 1, 2], budget=DraftBudget(token_seconds=0.001))
    assert all(map(len, [level.propose([step])[0] for _ in range(20)]))
    assert store.later == []
