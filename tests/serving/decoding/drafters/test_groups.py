"""The group of a request: the datastore drafter sends it with the request's contexts, to datastores that have groups."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from suffolk.datastore.context_query import ContextQuery
from suffolk.datastore.documents import Document
from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.calibration.calibration import Calibration
from suffolk.serving.decoding.drafters.retrieval.datastore import DatastoreDrafter
from suffolk.serving.decoding.drafters.retrieval.limits import Limits
from suffolk.serving.decoding.engine.loop.draft_options import DraftOptions
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest
from suffolk.serving.store.live_store.store import create_live_store
from tests.support.brute_force import BruteForceRetriever
from tests.support.later import LaterBruteForce

VOCAB = 20
LIMITS = Limits(max_match=4, max_depth=4)
GROUPS = {"a": [[1, 2, 3, 4]], "b": [[1, 2, 5, 6]]}
BATCH = [("a", 3), ("b", 5), (None, 9)]


class Grouped(LaterBruteForce):
    """Contexts with a group are answered from the documents of that group."""

    has_groups = True

    def __init__(self) -> None:
        super().__init__([[1, 2, 9]], VOCAB)
        self.groups = {name: BruteForceRetriever(documents, VOCAB) for name, documents in GROUPS.items()}

    def find_drafts(self, query: ContextQuery) -> list[DraftTree]:
        assert len(query.groups) == len(query.budgets) == len(query.contexts)
        trees = []
        for place, name in enumerate(query.groups):
            asked, owner = query.at([place]), self.groups.get(name or "")
            trees += owner.find_drafts(asked) if owner else super().find_drafts(asked)
        return trees


def request(tokens: list[int], group: str | None, number: int = 1) -> DraftRequest:
    return DraftRequest(number, np.asarray(tokens, np.int32), 64, options=DraftOptions(group=group))


def first_tokens(trees: Sequence[DraftTree]) -> list[list[int]]:
    return [tree.tokens[tree.parents == -1].tolist() for tree in trees]


def test_each_context_is_looked_up_in_its_group() -> None:
    drafter = DatastoreDrafter(Grouped(), VOCAB, LIMITS, prefetch=False)
    requests = [request([7, 1, 2], group, number) for number, (group, _) in enumerate(BATCH)]
    assert first_tokens(drafter.propose(requests)) == [[token] for _, token in BATCH]


def test_a_prefetched_tree_belongs_to_its_group() -> None:
    drafter = DatastoreDrafter(Grouped(), VOCAB, LIMITS, prefetch=True)
    before = [request([7, 1], group, number) for number, (group, _) in enumerate(BATCH)]
    drafter.propose(before)
    drafter.prefetch(before, [DraftTree.empty()] * len(BATCH))
    requests = [request([7, 1, 2], group, number) for number, (group, _) in enumerate(BATCH)]
    assert first_tokens(drafter.propose(requests)) == [[token] for _, token in BATCH]
    assert drafter.stats()["prefetched"] == len(BATCH)


@pytest.mark.parametrize("retriever", [BruteForceRetriever, LaterBruteForce])
def test_a_datastore_without_groups_ignores_the_group(retriever: type[BruteForceRetriever]) -> None:
    drafter = DatastoreDrafter(retriever([[1, 2, 9]], VOCAB), VOCAB, LIMITS)
    assert first_tokens(drafter.propose([request([7, 1, 2], "a")])) == [[9]]
    assert drafter.failures.stats() == {"failed": 0}


def test_documents_of_the_group_are_calibrated_apart_from_others(tmp_path: Path) -> None:
    """One tree for both would give a token that follows one of four occurrences the share of one that follows the only one."""
    with create_live_store(tmp_path / "store", vocab_size=VOCAB) as store:
        store.append_batch([Document(None, {}, np.array([1, 2, 9], np.uint32))], group="a")
        store.append_batch([Document(None, {}, np.array([2, token], np.uint32)) for token in (3, 4, 5, 6)])
        calibration = Calibration()
        drafter = DatastoreDrafter(store, VOCAB, LIMITS, calibration)
        asked = request([7, 1, 2], "a")
        [tree] = drafter.propose([asked])
        scores = dict(zip(tree.tokens.tolist(), tree.scores.tolist(), strict=True))
        assert scores.keys() == {3, 4, 5, 6, 9}
        assert scores[9] > 2 * scores[3]
        drafter.observe({asked.request_id: np.array([9], np.int32)})
        assert {"datastore store", "datastore store, group"} <= {each.source for each in calibration.learned()}
