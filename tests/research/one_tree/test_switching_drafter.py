"""Tests published rules that choose one source in each step, and the drafter that applies them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from research.one_tree.switching_rules import SwitchingDrafter, arctic_inference, frequency_score, sam_decoding
from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.retrieval.retrieval_scorer import Ids
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest, Generated
from tests.support.drafters import MadeUpDrafter, tree


def found_tree(match: int, counts: Sequence[int], match_count: int, parents: Sequence[int]) -> DraftTree:
    made = tree(list(range(len(counts))), parents)
    return DraftTree(
        made.tokens, made.parents, made.scores, made.sources, np.array(counts, np.uint64), match, match_count
    )


def matching(length: int) -> DraftTree:
    return found_tree(length, [1], 1, [-1])


def never() -> DraftTree:
    raise AssertionError("the network costs time")


@pytest.mark.parametrize(
    ("own", "corpus", "chosen"),
    [(4, 9, None), (5, 9, "prompt-lookup"), (4, 10, "datastore"), (5, 10, "prompt-lookup"), (6, 12, "datastore")],
)
def test_sam_decoding_takes_text_that_matches_five_tokens_and_counts_a_corpus_five_less(
    own: int, corpus: int, chosen: str | None
) -> None:
    found = {"prompt-lookup": [matching(own)], "datastore": [matching(2), matching(corpus)]}
    assert sam_decoding(found, never) == chosen


def test_sam_decoding_uses_the_network_if_no_text_matches() -> None:
    assert sam_decoding({"prompt-lookup": [DraftTree.empty()]}, never) is None


def test_frequency_scores_are_shares_of_short_and_likely_paths() -> None:
    # 10 occurrences: a follows 6 times, then b 5 of these times; c follows 4 times; one token is too rare
    assert frequency_score(found_tree(2, [6, 5, 4], 10, [-1, 0, -1])) == pytest.approx(1.5)
    assert frequency_score(found_tree(1, [6, 5, 4], 10, [-1, 0, -1])) == pytest.approx(1.0)  # the second is too deep
    assert frequency_score(found_tree(2, [91, 9], 100, [-1, -1])) == pytest.approx(0.91)
    assert frequency_score(DraftTree.empty()) == 0.0


def test_arctic_inference_takes_the_larger_expectation_and_text_if_they_are_equal() -> None:
    found = {"prompt-lookup": [matching(1)], "datastore": [found_tree(2, [5, 5], 10, [-1, 0]), DraftTree.empty()]}
    assert arctic_inference(found, lambda: tree([1, 2], [-1, 0], [0.6, 0.4])) == "prompt-lookup"
    assert arctic_inference(found, lambda: tree([1, 2], [-1, 0], [0.9, 0.4])) is None
    assert arctic_inference({"datastore": [DraftTree.empty()]}, DraftTree.empty) is None


class Found:
    """A text source that returns a given draft, and records its observations."""

    def __init__(self, name: str, trees: list[DraftTree]) -> None:
        self.name, self.trees = name, trees
        self.observed: list[list[int]] = []

    def propose(self, requests: Sequence[DraftRequest]) -> list[DraftTree]:
        raise AssertionError

    def draft(self, requests: Sequence[DraftRequest]) -> list[list[DraftTree]]:
        return [self.trees for _ in requests]

    def draft_after(self, requests: Sequence[DraftRequest], paths: Sequence[Sequence[Ids]]) -> list[list[DraftTree]]:
        raise AssertionError

    def observe(self, generated: Generated) -> None:
        self.observed += [tokens.tolist() for tokens in generated.values()]

    def release(self, request_id: int) -> None:
        pass

    def stats(self) -> dict[str, float]:
        return {"calls": 1}

    def close(self) -> None:
        pass


def test_a_switch_drafts_from_one_source_and_trains_those_that_drafted() -> None:
    text, network = Found("prompt-lookup", [matching(9)]), MadeUpDrafter(lambda request: tree([7, 8], [-1, 0]))
    drafter = SwitchingDrafter("sam-decoding: made-up", [text], network, sam_decoding)
    request = DraftRequest(1, np.array([1, 2], np.int32), 4)
    assert drafter.propose([request])[0].tokens.tolist() == [0]
    drafter.observe({1: np.array([3], np.int32)})
    text.trees = [matching(1)]
    assert drafter.propose([request])[0].tokens.tolist() == [7, 8]
    drafter.observe({1: np.array([7], np.int32)})
    assert text.observed == [[3], [7]]
    assert network.observed == [[7]]
    assert drafter.stats() == {"from text": 1, "from the network": 1, "calls": 1}
    drafter.release(1)
    assert network.released == [1]
