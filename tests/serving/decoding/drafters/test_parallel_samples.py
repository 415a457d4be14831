"""Tests drafts from other answers to the same prompt: which answers give drafts, and for how long they are kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from suffolk.serving.decoding.drafters.registry import source_bits
from suffolk.serving.decoding.drafters.retrieval.parallel_samples import ENDED, ParallelSamplesDrafter
from suffolk.serving.decoding.engine.loop.draft_options import DraftOptions
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.drafters import alone, eager_loop
from tests.support.tiny_models import tiny_model

VOCAB = 300
PROMPT = (7, 8)
HOT = SamplingSettings(temperature=1.0)


def answering(
    number: int, text: Sequence[int], prompt: Sequence[int] = PROMPT, tenant: str = "", remember: bool = True
) -> DraftRequest:
    options = DraftOptions(tenant=tenant, remember=remember)
    return DraftRequest(number, np.array([*prompt, *text], np.int32), 8, len(prompt), HOT, options=options)


def drafted(drafter: ParallelSamplesDrafter, *requests: DraftRequest) -> list[list[int]]:
    """The first drafted path of each request."""
    paths = []
    for tree in drafter.propose(requests):
        assert set(tree.sources.tolist()) <= {source_bits("parallel-samples")}
        path, at = [], -1
        while children := np.flatnonzero(tree.parents == at).tolist():
            at = children[0]
            path.append(int(tree.tokens[at]))
        paths.append(path)
    return paths


def test_what_one_sample_has_generated_is_a_draft_for_the_others() -> None:
    drafter = ParallelSamplesDrafter(VOCAB)
    assert drafted(drafter, answering(1, [])) == [[]]
    assert drafter.stats()["calls"] == 0
    assert drafted(drafter, answering(1, [20, 21, 22]), answering(2, [])) == [[], [20, 21, 22]]
    assert drafted(drafter, answering(1, [20, 21, 22, 23]), answering(2, [5, 20, 21])) == [[], [22, 23]]
    paths = [np.array([22], np.int32), np.array([9], np.int32)]
    behind, elsewhere = drafter.draft_after([answering(2, [5, 20, 21])], [paths])[0]
    assert behind.tokens.tolist() == [23]
    assert len(elsewhere) == 0


def test_a_sample_that_is_rolled_back_takes_its_tokens_back() -> None:
    drafter = ParallelSamplesDrafter(VOCAB)
    drafted(drafter, answering(1, [20, 21, 22]))
    drafted(drafter, answering(1, [20]))
    assert drafted(drafter, answering(1, [20, 30]), answering(2, [])) == [[], [20, 30]]


def test_other_prompts_and_tenants_and_forgotten_texts_give_nothing() -> None:
    drafter = ParallelSamplesDrafter(VOCAB)
    known = answering(1, [20, 21], tenant="a")
    secret = answering(2, [20, 40], tenant="a", remember=False)
    others = [answering(3, [20], (7, 9), "a"), answering(4, [20], tenant="b"), answering(5, [20])]
    assert drafted(drafter, known, secret, *others) == [[], [], [], [], []]
    assert drafted(drafter, answering(6, [20], tenant="a")) == [[21]]


def test_ended_samples_are_kept_while_another_one_runs() -> None:
    drafter = ParallelSamplesDrafter(VOCAB)
    for number in range(ENDED + 1):
        drafted(drafter, answering(number, [20 + number, 99]))
    drafted(drafter, answering(50, []))
    for number in range(ENDED + 1):
        drafter.release(number)
    assert drafted(drafter, answering(50, [20])) == [[]]  # the oldest is forgotten
    assert drafted(drafter, answering(50, [21])) == [[99]]
    drafter.release(50)
    assert drafted(drafter, answering(51, [21])) == [[]]


def test_a_later_sample_drafts_from_one_that_still_runs() -> None:
    target = Target.wrap(tiny_model())
    loop = eager_loop(target, {"one": ParallelSamplesDrafter(VOCAB)}, slots=2)
    settings = SamplingSettings(40, ignore_eos=True)
    first, second = (Request(number, target, PROMPT, settings, "one", 8) for number in (1, 2))
    loop.join(first)
    for _ in range(30):
        loop.step()
    loop.join(second)
    while loop.running:
        loop.step()
    assert first.generated == second.generated == alone(target, PROMPT, settings)
    assert first.stats.steps > 30
    assert second.stats.steps < 15
