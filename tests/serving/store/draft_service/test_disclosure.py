"""Rare text is hidden exactly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from suffolk.datastore.context_query import ContextQuery
from suffolk.datastore.documents import Document
from suffolk.datastore.errors import DeadlineExceeded, InvalidArgument
from suffolk.serving.net.identity import OPERATOR
from suffolk.serving.net.messages.choices import DatastoreChoice
from suffolk.serving.store.draft_service.disclosure import MinCount
from suffolk.serving.store.draft_service.service import DraftService
from suffolk.serving.store.live_store.store import create_live_store
from tests.support import oracle
from tests.support.brute_force import BruteForceRetriever
from tests.support.callers import acting_as
from tests.support.draft_server import CONTEXTS, DOCUMENTS, VOCABULARY, connected, serving
from tests.support.stores import make_store


def occurrences(text: list[int]) -> int:
    return len(oracle.occurrences(DOCUMENTS, text))


@pytest.mark.parametrize("least", [1, 2, 3, 10, 500])
@pytest.mark.parametrize("min_match", [1, 3])
def test_answers_are_those_of_the_frequent_text_alone(least: int, min_match: int) -> None:
    store = MinCount(BruteForceRetriever(DOCUMENTS, VOCABULARY), least)
    matches = store.lookup_batch(CONTEXTS, 8, min_match)
    trees = store.draft_batch(CONTEXTS, 8, min_match, 4, 32)
    for context, match, tree in zip(CONTEXTS, matches, trees, strict=True):
        known = [size for size in range(min_match, 9) if size <= len(context)]
        frequent = [size for size in known if oracle.holders(DOCUMENTS, context[-size:]) >= least]
        assert match == ((max(frequent), occurrences(context[-max(frequent) :])) if frequent else (0, 0))
        assert (tree.match_length, tree.match_count) == match
        assert tree.counts is not None
        assert all(tree.counts >= least)
        for node, count in enumerate(tree.counts):
            path, at = [], node
            while at >= 0:
                path.insert(0, int(tree.tokens[at]))
                at = int(tree.parents[at])
            assert count == occurrences([*context[-match.length :], *path])
            assert oracle.holders(DOCUMENTS, [*context[-match.length :], *path]) >= least


def test_a_server_hides_rare_text(tmp_path: Path) -> None:
    with make_store(tmp_path / "a", [[[1, 2, 3, 4], [1, 2, 3, 5], [7, 8, 9]]], vocab_size=12) as store:
        with serving({"a": store, "b": store}, min_count=2) as server, connected(server, "a") as remote:
            assert remote.lookup([1, 2, 3]) == (3, 2)
            assert remote.lookup([1, 2, 3, 4]) == (0, 0)
            assert remote.lookup([7, 8]) == (0, 0)
            tree = remote.draft([1, 2])
            assert (tree.tokens.tolist(), np.asarray(tree.counts).tolist()) == ([3], [2])
            assert len(remote.draft([1, 2, 3])) == len(remote.draft([7, 8])) == 0
        with serving({"a": store, "b": store}, min_count=3) as server, connected(server, "a") as remote:
            assert remote.lookup([1, 2, 3]) == (0, 0)
    with pytest.raises(InvalidArgument, match="min_count is 0; it must be between 1 and"), serving({}, min_count=0):
        pass


def test_a_document_that_repeats_itself_reveals_nothing(tmp_path: Path) -> None:
    """Regression: occurrences were counted, so a text of one document was shown if the document repeats it."""
    secret = [5, 6, 7] * 50
    with make_store(tmp_path / "a", [[secret, [1, 2, 3], [1, 2, 4]]], vocab_size=12) as store:
        hiding = MinCount(store, 2)
        assert store.lookup([5, 6]).count == 50
        assert hiding.lookup([5, 6]) == (0, 0)
        assert len(hiding.draft([5, 6])) == 0
        assert hiding.occurrences([5, 6]) == []
        assert hiding.lookup([1, 2]) == (2, 2)


@pytest.mark.parametrize(("repeats", "is_shown"), [(100, True), (100_000, False)])
def test_few_documents_among_very_many_occurrences_are_hidden(repeats: int, is_shown: bool, tmp_path: Path) -> None:
    """The work for a text is bounded. What is not found within the bound is hidden, never shown."""
    with make_store(tmp_path / "a", [[[1] * repeats, [1]]], vocab_size=12) as store:
        assert MinCount(store, 2).lookup([1]) == ((1, repeats + 1) if is_shown else (0, 0))
    with make_store(tmp_path / "b", [[[1] * repeats, [1] * repeats]], vocab_size=12) as store:
        assert MinCount(store, 2).lookup([1]) == (1, 2 * repeats)  # probes are spread over all occurrences


def test_the_deadline_is_checked_within_a_tree() -> None:
    documents = [[0, token, other] for token in range(8) for other in range(15)] * 2  # 8 + 120 nodes follow 0
    service = DraftService({"code": BruteForceRetriever(documents, VOCABULARY)}, 1, min_count=2)
    checks = iter([False] * 4 + [True] * 99)  # before the query, for the match, and for 64 of 128 nodes
    query = ContextQuery([[0]], max_match=1, max_nodes=128, least_counts=[1])
    with acting_as(OPERATOR), pytest.raises(DeadlineExceeded, match="while documents were counted"):
        service.draft([], query, lambda: next(checks))


def test_weights_do_not_count_as_documents(tmp_path: Path) -> None:
    with (
        make_store(tmp_path / "a", [[[1, 2, 3]]], vocab_size=12) as rare,
        make_store(tmp_path / "b", [[[4, 5, 6]]], vocab_size=12) as other,
        serving({"a": rare, "b": other}, min_count=2) as server,
        acting_as(OPERATOR),
    ):
        choices = [DatastoreChoice("a", 16), DatastoreChoice("b")]
        chosen = server.service.chosen(choices, lambda: False)
        assert chosen.lookup_batch([[1, 2]]) == [(0, 0)]


def test_groups_pass_through(tmp_path: Path) -> None:
    with create_live_store(tmp_path / "live", vocab_size=VOCABULARY) as live:
        for group, tokens in (("a", [1, 2, 3]), ("a", [1, 2, 4]), ("b", [1, 2, 3])):
            live.append(tokens, group=group)
        store = MinCount(live, 2)
        assert store.has_groups
        contexts = [[1, 2], [1, 2], [9, 2]]
        found = store.lookup_batch(contexts, group=["a", "b", "a"], scope="group")
        assert found == [(2, 2), (0, 0), (1, 2)]
        trees = store.draft_batch(contexts, group=["a", "b", "a"], scope="group")
        assert [len(tree) for tree in trees] == [0, 0, 0]
        assert store.draft_batch([[1, 2]])[0].tokens.tolist() == [3]


def test_a_tree_is_of_the_group_or_of_the_store(tmp_path: Path) -> None:
    """Regression: counts of a tree of both do not fall from node to node, and rare nodes were shown for frequent ones."""
    with create_live_store(tmp_path / "live", vocab_size=VOCABULARY) as live:
        for last in (8, 9, 10):
            live.append([1, 2, 7, last], group="g")
        for _ in range(3):
            live.append([1, 2, 5, 6])
        live.append([1, 2, 5, 4])
        [tree] = MinCount(live, 3).draft_batch([[1, 2]], group="g", scope="group_first")
        assert (tree.tokens.tolist(), tree.parents.tolist()) == ([7], [-1])
        [tree] = MinCount(live, 4).draft_batch([[1, 2]], group="g", scope="group_first")
        assert (tree.tokens.tolist(), tree.parents.tolist()) == ([5], [-1])


def test_a_rare_match_in_a_group_does_not_hide_the_store(tmp_path: Path) -> None:
    """Regression: no answer used to mean that the group held the text, fewer than K times."""
    with create_live_store(tmp_path / "live", vocab_size=20) as live:
        live.append_batch([Document(None, {}, np.array([1, 2, 3], np.uint32))] * 2)
        live.append([1, 2, 3], group="a")
        live.append([9, 9], group="b")
        store = MinCount(live, 2)
        asked = {"group": ["a", "b", "unknown", None]}
        assert store.lookup_batch([[1, 2]] * 4, **asked) == [(2, 3)] * 4
        assert [tree.counts.tolist() for tree in store.draft_batch([[1, 2]] * 4, **asked)] == [[3]] * 4
