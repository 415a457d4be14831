"""The retrieval drafters equal the oracle, and a failing source loses only its own drafts."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from suffolk.datastore.context_query import ContextQuery
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import DeadlineExceeded, InvalidArgument, Unavailable, Unsupported
from suffolk.serving.decoding.drafters.load import make_drafter
from suffolk.serving.decoding.drafters.registry import BUILT_IN, NONE
from suffolk.serving.decoding.drafters.retrieval.datastore import DatastoreDrafter
from suffolk.serving.decoding.drafters.retrieval.limits import Limits, require_match
from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest
from tests.support import oracle
from tests.support.brute_force import BruteForceRetriever
from tests.support.drafters import MadeUpDrafter, tree

VOCAB = 6
LIMITS = Limits(max_match=4, min_match=1, max_depth=3)


def request(tokens: Sequence[int], number: int = 1, max_nodes: int = 64) -> DraftRequest:
    return DraftRequest(number, np.asarray(tokens, np.int32), max_nodes)


def paths(draft: DraftTree) -> set[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    for token, parent in zip(draft.tokens.tolist(), draft.parents.tolist(), strict=True):
        found.append((*(found[parent] if parent >= 0 else ()), token))
    return set(found)


@pytest.mark.parametrize("seed", range(5))
def test_prompt_lookup_drafts_what_followed_earlier_in_a_growing_request(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, VOCAB, 60).tolist()
    drafter = PromptLookupDrafter(VOCAB, LIMITS)
    for size in range(5, 60, 3):
        (draft,) = drafter.propose([request(tokens[:size])])
        context = tokens[:size]
        length = next(
            (n for n in range(4, 0, -1) if any(at < size for _, at in oracle.occurrences([context], context[-n:]))), 0
        )
        following = [
            context[at : at + 6] for _, at in oracle.occurrences([context], context[size - length :]) if at < size
        ]
        expected = {tuple(each[:depth]) for each in following for depth in range(1, len(each) + 1)} if length else set()
        assert paths(draft) == expected
        assert np.all(np.diff(draft.scores) <= 0)
        assert set(draft.sources.tolist()) <= {2}


def test_the_request_s_own_text_is_copied_twice_as_deep_as_others() -> None:
    assert Limits(max_depth=10).copy_depth == 20
    assert Limits(max_depth=4096).copy_depth == 4096


def test_prompt_lookup_forgets_what_was_rolled_back_and_released() -> None:
    drafter = PromptLookupDrafter(VOCAB, LIMITS)
    drafter.propose([request([1, 2, 3, 1, 2])])
    assert paths(drafter.propose([request([1, 2, 4, 1])])[0]) != set()
    fresh = PromptLookupDrafter(VOCAB, LIMITS)
    assert paths(drafter.propose([request([1, 2, 3, 1])])[0]) == paths(fresh.propose([request([1, 2, 3, 1])])[0])
    drafter.release(1)
    assert len(drafter.propose([request([1])])[0]) == 0


def test_prompt_lookup_forgets_a_draft_behind_which_it_could_not_look() -> None:
    """Regression: an error during a lookup used to leave the draft in the request's text."""
    drafter, fresh = PromptLookupDrafter(VOCAB, LIMITS), PromptLookupDrafter(VOCAB, LIMITS)
    drafter.draft([request([1, 2, 3, 1])])
    with pytest.raises(InvalidArgument, match="max_nodes"):
        drafter.draft_after([request([1, 2, 3, 1], max_nodes=10**6)], [[np.array([5, 5, 4], np.int32)]])
    longer = request([1, 2, 3, 1, 2, 4, 3, 1])
    assert paths(drafter.propose([longer])[0]) == paths(fresh.propose([longer])[0]) != set()


def test_datastore_drafts_are_the_oracles_for_the_longest_and_for_shorter_matches_in_one_call() -> None:
    documents = [[1, 2, 3, 4, 1, 2, 5], [2, 3, 3, 0]]
    store = BruteForceRetriever(documents, VOCAB)
    drafter = DatastoreDrafter(store, VOCAB, LIMITS)
    contexts = [[0, 1, 2], [3], [5, 5], [1, 2, 3]]
    drafts = drafter.propose([request(context, number) for number, context in enumerate(contexts)])
    for draft, context in zip(drafts, contexts, strict=True):
        expected = [
            path for length in (4, 3, 2, 1) for path, _ in oracle.draft(documents, context[-length:], 4, 1, 3, 64)
        ]
        assert paths(draft) == set(expected)
        assert np.all(np.diff(draft.scores) <= 0)
        assert set(draft.sources.tolist()) <= {1}
    assert (3,) in paths(drafts[3]), "the second document follows a shorter match only"
    assert drafter.stats() == {"calls": 1, "failed": 0}


def test_an_id_that_only_the_target_knows_hides_what_stands_before_it_and_no_other_request() -> None:
    """Regression: an id above the datastore's vocabulary in one text used to make the drafts of all requests fail."""
    documents = [[1, 2, 3, 4, 1, 2, 5], [2, 3, 3, 0]]
    drafter, fresh = (DatastoreDrafter(BruteForceRetriever(documents, VOCAB), VOCAB + 4, LIMITS) for _ in range(2))
    strange = VOCAB + 3
    texts = [[0, 1, 2], [1, strange, 2, 3], [1, 2, strange]]
    drafts = drafter.propose([request(text, number) for number, text in enumerate(texts)])
    for draft, known in zip(drafts[:2], ([0, 1, 2], [2, 3]), strict=True):
        assert paths(draft) == paths(fresh.propose([request(known, 9)])[0]) != set()
    assert len(drafts[2]) == 0
    behind = [np.array(path, np.int32) for path in ([strange], [strange, 2], [3])]
    ((none, two, three),) = drafter.draft_after([request(texts[0], 0)], [behind])
    assert (len(none), paths(two), len(three) > 0) == (0, {(3,), (3, 3), (3, 4), (3, 3, 0), (3, 4, 1), (5,)}, True)
    assert drafter.stats() == {"calls": 1, "failed": 0}


class BadStore(BruteForceRetriever):
    """Raises or returns invalid trees in ``find_drafts``."""

    def __init__(self, answer: Any) -> None:
        super().__init__([[1, 2, 3]], VOCAB)
        self.answer = answer

    def find_drafts(self, query: ContextQuery) -> list[DraftTree]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return [self.answer] * len(query.contexts) if isinstance(self.answer, DraftTree) else list(self.answer)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Unavailable("nobody there"), "Unavailable"),
        (DeadlineExceeded("too late"), "DeadlineExceeded"),
        ([], "Internal"),
        (tree([VOCAB], [-1]), "InvalidArgument"),
        (tree([-1], [-1]), "InvalidArgument"),
        (tree([1, 2], [1, -1]), "InvalidArgument"),
    ],
)
def test_a_fault_costs_the_draft_is_counted_and_logged_once(
    answer: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    drafter = DatastoreDrafter(BadStore(answer), VOCAB, LIMITS)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            (draft,) = drafter.propose([request([1, 2])])
            assert len(draft) == 0
            drafter.observe({1: np.array([3], np.int32)})
    assert drafter.stats() == {"calls": 3, "failed": 3, f"failed {reason}": 3}
    assert len(caplog.records) == 1


def named(name: str) -> MadeUpDrafter:
    drafter = MadeUpDrafter(lambda request: DraftTree.empty())
    drafter.name = name
    return drafter


def test_drafters_by_name() -> None:
    store = BruteForceRetriever([[1, 2, 3]], VOCAB)
    models = [named(entry.name) for entry in BUILT_IN.values() if entry.needs_option]
    made = [make_drafter(name, VOCAB, [store], models=models) for name in (NONE, *BUILT_IN)]
    assert [None if drafter is None else drafter.name for drafter in made] == [None, *BUILT_IN]
    with pytest.raises(
        InvalidArgument, match="drafter eagle needs a model that is loaded .on the command line: --head FOLDER"
    ):
        make_drafter("eagle", VOCAB, [store], models=models[:1])
    with pytest.raises(
        InvalidArgument, match="drafter hybrid needs a datastore; open one .on the command line: --datastore"
    ):
        make_drafter("hybrid", VOCAB)
    with pytest.raises(InvalidArgument, match="drafter is 'magic'; it must be one of none, datastore"):
        make_drafter("magic", VOCAB)
    single = make_drafter("datastore", VOCAB, store)  # a single source needs no list
    assert single is not None
    assert single.name == "datastore"
    with pytest.raises(InvalidArgument, match="'store/' is not a datastore; open it first, with suffolk.open"):
        make_drafter("datastore", VOCAB, "store/")  # type: ignore[arg-type]


def test_several_datastores_are_all_asked() -> None:
    stores = [BruteForceRetriever([[1, 2, 3]], VOCAB), BruteForceRetriever([[1, 2, 4]], VOCAB)]
    drafter = make_drafter("datastore", VOCAB, stores)
    assert drafter is not None
    (draft,) = drafter.propose([request([1, 2])])
    assert set(draft.tokens[draft.parents == -1].tolist()) == {3, 4}
    assert set(draft.sources.tolist()) == {1}
    drafter.observe({1: np.array([4], np.int32)})
    assert drafter.stats()["calls"] == drafter.stats()["datastore: calls"] == 2


def test_hybrid_counts_and_learns_in_all_its_drafters() -> None:
    drafter = make_drafter("hybrid", VOCAB, [BadStore(Unavailable("gone"))])
    assert drafter is not None
    (draft,) = drafter.propose([request([1, 2, 3, 1, 2])])
    drafter.observe({1: np.array([3], np.int32)})
    assert set(draft.sources.tolist()) == {2}
    stats = drafter.stats()
    assert (stats["calls"], stats["failed"], stats["failed Unavailable"], stats["datastore: failed"]) == (2, 1, 1, 1)
    drafter.release(1)
    drafter.close()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((0, 1, 1), "max_match is 0; it must be between 1 and 4096"),
        ((10**20, 1, 1), "max_match is 100000000000000000000; it must be between"),  # reached the native module once
        ((4, 1, 4097), "max_depth is 4097; it must be between 1 and 4096"),
        ((4.5, 1, 1), "max_match is 4.5, of type float; it must be a whole number"),
        ((4, 0, 1), "min_match is 0"),
        ((4, 1, 0), "max_depth is 0"),
        ((2, 3, 1), "min_match is 3; it must not be above max_match, 2"),
    ],
)
def test_limits_out_of_bounds_are_refused(values: tuple[int, int, int], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Limits(*values)


class Described(BruteForceRetriever):
    def __init__(self, order_depth: int, tokenizer: str | None) -> None:
        super().__init__([[1]], VOCAB)
        self.facts = {"order_depth": order_depth, "tokenizer": tokenizer, "vocab_size": VOCAB}

    def info(self) -> dict[str, Any]:
        return self.facts


def test_a_datastore_must_fit_limits_and_tokenizer() -> None:
    require_match(Described(64, None), "store", Limits(), "model", "ab" * 32)
    require_match(Described(26, "ab" * 32), "store", Limits(), "model", "ab" * 32)
    with pytest.raises(
        InvalidArgument, match="max_match 16 \\+ max_depth 10 is above the datastore's order depth 25; lower"
    ):
        require_match(Described(25, None), "store", Limits(), "model", "ab" * 32)
    with pytest.raises(
        Unsupported, match="datastore store was built with tokenizer cdcdcdcdcdcd, model m has abababababab; build"
    ):
        require_match(Described(64, "cd" * 32), "store", Limits(), "m", "ab" * 32)
    with pytest.raises(
        Unsupported, match=f"datastore store was built for {VOCAB} token ids, model m has {VOCAB - 1}; build"
    ):
        require_match(Described(64, None), "store", Limits(), "m", None, VOCAB - 1)
