"""A neural drafter that fails in a hybrid loses only its own drafts, and the error is reported."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.hybrid.drafter import HybridDrafter
from suffolk.serving.decoding.drafters.hybrid.explanation import Explanation
from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.engine.costs.draft_budget import DraftBudget
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.drafters import MadeUpDrafter, eager_loop, tree
from tests.support.tiny_models import VOCAB, tiny_model

TEXT = np.array([5, 6, 7, 8, 9, 5, 6], np.int32)


class Fewer(MadeUpDrafter):
    """Returns one tree too few."""

    def propose(self, requests: Sequence[DraftRequest]) -> list[DraftTree]:
        return super().propose(requests)[1:]


def out_of_memory(request: DraftRequest) -> DraftTree:
    raise torch.OutOfMemoryError("CUDA out of memory")


def no_numbers(request: DraftRequest) -> DraftTree:
    return tree([40, 41], [-1, 0], [np.nan, np.nan])


def sound(request: DraftRequest) -> DraftTree:
    return tree([40, 41], [-1, 0], [0.9, 0.8])


BROKEN = {
    "raises": (lambda: MadeUpDrafter(out_of_memory), "OutOfMemoryError"),
    "NaN": (lambda: MadeUpDrafter(no_numbers), "InvalidArgument"),
    "another vocabulary": (lambda: MadeUpDrafter(lambda request: tree([VOCAB], [-1], [0.5])), "InvalidArgument"),
    "too few": (lambda: Fewer(sound), "InvalidArgument"),
}


@pytest.mark.parametrize("way", BROKEN)
def test_what_is_retrieved_is_proposed_beside_a_broken_network(way: str, caplog: pytest.LogCaptureFixture) -> None:
    make, reason = BROKEN[way]
    drafter = HybridDrafter([PromptLookupDrafter(VOCAB)], [make(), MadeUpDrafter(sound)], vocab_size=VOCAB)
    alone = HybridDrafter([PromptLookupDrafter(VOCAB)], [MadeUpDrafter(sound)])
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            requests = [DraftRequest(number, TEXT, 16) for number in (1, 2)]
            for mine, other in zip(drafter.propose(requests), alone.propose(requests), strict=True):
                assert {7, 40} <= set(mine.tokens.tolist())  # from prompt lookup, and from the working network
                assert mine.tokens.tolist() == other.tokens.tolist()
            for number in (1, 2):
                drafter.observe({number: np.array([7, 8], np.int32)})
                alone.observe({number: np.array([7, 8], np.int32)})
    assert drafter.stats()["failed"] == drafter.stats()[f"failed {reason}"] == 6
    assert drafter.stats()[f"made-up: failed {reason}"] == 6
    assert len([each for each in caplog.records if "neural drafter made-up" in each.message]) == 1


def test_a_sound_tree_stays_beside_a_broken_one_of_the_same_network() -> None:
    network = MadeUpDrafter(lambda request: sound(request) if request.request_id == 1 else no_numbers(request))
    drafter = HybridDrafter([PromptLookupDrafter(VOCAB)], [network])
    one, other = drafter.propose([DraftRequest(number, TEXT, 16) for number in (1, 2)])
    assert 40 in one.tokens
    assert 40 not in other.tokens
    assert 7 in other.tokens
    assert drafter.stats()["failed InvalidArgument"] == 1


def test_the_time_of_faults_is_booked_and_they_are_not_asked_for_ever() -> None:
    def fail_late(request: DraftRequest) -> DraftTree:
        time.sleep(0.002)
        raise RuntimeError("a device that was lost")

    explanation = Explanation()
    drafter = HybridDrafter([PromptLookupDrafter(VOCAB)], [MadeUpDrafter(fail_late)])
    drafter.explain(explanation)
    request = DraftRequest(1, TEXT, 16, budget=DraftBudget(token_seconds=0.004))
    for _ in range(40):
        drafter.propose([request])
        drafter.observe({1: np.array([30], np.int32)})
    found = drafter.stats()
    ran, skipped = found["made-up: ran"], found["made-up: skipped"]
    assert 0 < found["failed RuntimeError"] == ran < 25
    assert ran + skipped == 40
    assert found["model_seconds"] >= 0.002 * ran
    [line] = explanation.lines()
    assert line.startswith("made-up left out in 40 of 40 steps: expected to add ")  # a failed draft is none


def test_a_request_counts_the_failures_of_its_network() -> None:
    target = Target.wrap(tiny_model("llama"))
    drafter = HybridDrafter([PromptLookupDrafter(VOCAB)], [MadeUpDrafter(out_of_memory)])
    loop = eager_loop(target, {"hybrid": drafter})
    request = Request(1, target, np.arange(10, dtype=np.int32), SamplingSettings(6, ignore_eos=True), "hybrid")
    loop.join(request)
    while loop.running:
        loop.step()
    assert len(request.generated) == 6
    assert request.stats.draft_failures["OutOfMemoryError"] > 0


class Reader(MadeUpDrafter):
    """Records its hidden states, in addition to the records of ``MadeUpDrafter``."""

    layers = (1,)

    def __init__(self) -> None:
        super().__init__(sound)
        self.followed: list[int] = []
        self.closed = False

    def follow(self, request_id: int, features: torch.Tensor) -> None:
        self.followed.append(request_id)

    def close(self) -> None:
        self.closed = True


def faulty(method: str) -> Reader:
    """A feature drafter whose ``method`` raises."""

    def fail(*args: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    reader = Reader()
    setattr(reader, method, fail)
    return reader


@pytest.mark.parametrize("method", ["follow", "observe", "release", "stats", "close"])
def test_a_fault_of_one_network_does_not_keep_anything_from_another(method: str) -> None:
    """Regression: only ``propose`` was guarded.

    If a network raised in another method, later networks missed hidden states or were never released.
    """
    second = Reader()
    drafter = HybridDrafter([PromptLookupDrafter(VOCAB)], [faulty(method), second], vocab_size=VOCAB)
    drafter.follow(1, torch.zeros(6, 1, 4))
    (proposed,) = drafter.propose([DraftRequest(1, TEXT, 16)])
    drafter.observe({1: np.array([7, 8], np.int32)})
    drafter.release(1)
    assert {7, 40} <= set(proposed.tokens.tolist())
    drafter.close()
    assert drafter.stats()["failed OutOfMemoryError"] > 0
    assert (second.followed, second.observed, second.released, second.closed) == ([1], [[7, 8]], [1], True)
