"""Tests retrieved and neural drafts in one tree: their sources, learning, and networks that add too little and are skipped."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace

import numpy as np
import pytest

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.tree_paths import accepted_length
from suffolk.serving.decoding.drafters.calibration.confidence import Confidence
from suffolk.serving.decoding.drafters.hybrid.drafter import HybridDrafter
from suffolk.serving.decoding.drafters.hybrid.gated_drafter import GatedDrafter
from suffolk.serving.decoding.drafters.neural.draft_model.drafter import DraftModelDrafter
from suffolk.serving.decoding.drafters.neural.tree_bounds import TreeBounds
from suffolk.serving.decoding.drafters.registry import source_bits
from suffolk.serving.decoding.drafters.retrieval.datastore import DatastoreDrafter
from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.engine.costs.draft_budget import DraftBudget
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.step_loop import StepLoop
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support import eagle_heads
from tests.support.brute_force import BruteForceRetriever
from tests.support.drafters import Booked, Free, MadeUpDrafter, alone, eager_decoder, tree
from tests.support.tiny_models import VOCAB, tiny_model

PROMPT = [(7 * number) % VOCAB for number in range(30)]
CHAIN = TreeBounds(max_depth=4, width=1, children=1)


def draft_model(target: Target) -> DraftModelDrafter:
    return DraftModelDrafter(target, VOCAB, 1, 300, CHAIN, Free())


def store_of(texts: list[list[int]]) -> DatastoreDrafter:
    return DatastoreDrafter(BruteForceRetriever(texts, VOCAB), VOCAB)


def test_a_node_that_both_propose_carries_both_marks() -> None:
    target = Target.wrap(tiny_model())
    answer = alone(target, PROMPT, SamplingSettings(6))
    drafter = HybridDrafter([store_of([[*PROMPT, *answer]])], [draft_model(target)])
    [found] = drafter.propose([DraftRequest(1, np.asarray(PROMPT, np.int32), 16, len(PROMPT))])
    assert found.tokens[:4].tolist() == answer[:4]
    assert set(found.sources[:4].tolist()) == {source_bits("datastore+draft-model")}
    assert found.validate(VOCAB)
    stats = drafter.stats()
    assert stats["draft-model: ran"] == stats["draft-model: calls"] == stats["datastore: calls"] == 1
    drafter.close()


def test_what_one_does_not_know_the_other_adds() -> None:
    """The datastore knows the second half of the answer, and the network is right everywhere.

    So M is at least that of the network.
    """
    target = Target.wrap(tiny_model())
    settings = SamplingSettings(60, ignore_eos=True)
    answer = alone(target, PROMPT, settings)
    lengths = {}
    for name, drafter in {
        "store": store_of([answer[30:]]),
        "network": draft_model(target),
        "both": HybridDrafter([store_of([answer[30:]])], [draft_model(target)]),
    }.items():
        run = eager_decoder(target, drafter, 32).generate(PROMPT, settings)
        list(run)
        assert run.tokens == answer
        lengths[name] = run.stats.mean_generated_length
        drafter.close()
    assert lengths["both"] >= lengths["network"] > lengths["store"]


def test_what_networks_take_and_bring_is_booked_apart() -> None:
    target = Target.wrap(tiny_model())
    settings = SamplingSettings(40, ignore_eos=True)
    answer = alone(target, PROMPT, settings)
    drafter = HybridDrafter([store_of([[*PROMPT, *answer[:10]]])], [draft_model(target)])
    planner = Booked()
    loop = StepLoop(target, {"hybrid": drafter}, planner, 1, 700)
    request = Request(1, target, PROMPT, settings, "hybrid", 16)
    loop.join(request)
    while loop.running:
        loop.step()
    assert request.generated == answer
    assert sum(each.model_seconds for each in planner.candidates) == pytest.approx(drafter.stats()["model_seconds"])
    assert all(each.seconds > 0 for each in planner.candidates)
    of_models, accepted = (
        sum(getattr(each, name) for each in planner.candidates) for name in ("accepted_of_models", "accepted")
    )
    known = request.stats.to_dict()["earned_by_source"]
    assert (
        0
        < of_models
        == sum(tokens for bits, tokens in known.items() if int(bits) == source_bits("draft-model"))
        < accepted
    )
    drafter.close()


def test_a_useless_datastore_does_not_lower_the_scores_of_another() -> None:
    """Regression: both had one estimate of acceptance, which learned from the last of them alone."""
    right, wrong = store_of([[1, 2, 3, 4] * 8]), store_of([[4, 9] * 16])
    drafter = HybridDrafter([right, wrong])
    text = [1, 2, 3, 4] * 5
    for _ in range(60):
        [found] = drafter.propose([DraftRequest(1, np.asarray(text, np.int32), 8)])
        tokens = np.asarray([text[-4]], np.int32)
        drafter.observe({1: tokens})
        text += tokens.tolist()
    scores = drafter._acceptance
    assert scores.scale("1 datastore", 1) < 0.5 < scores.scale("0 datastore", 1)
    drafter.close()


def test_a_network_that_may_take_no_time_is_not_run() -> None:
    calls: list[DraftRequest] = []
    network = GatedDrafter(
        MadeUpDrafter(lambda request: (calls.append(request), tree([1], [-1], [1.0]))[1]), Confidence()
    )
    request = DraftRequest(1, np.arange(9, dtype=np.int32), 8, budget=DraftBudget(token_seconds=1.0, model_seconds=0.0))
    for _ in range(300):
        assert network.add([request], [DraftTree.empty()]) == [[]]
        network.observe({1: np.array([1], np.int32)})
    assert not calls
    assert network.stats()["skipped"] == 300


@pytest.mark.parametrize(("tokens", "depth"), [([5], 0), ([1], 1), ([1, 3, 9], 2), ([1, 2, 4], 2), ([1, 2, 4, 6], 2)])
def test_how_far_a_text_follows_a_tree(tokens: list[int], depth: int) -> None:
    found = tree([1, 2, 3, 7], [-1, 0, 0, 1])
    assert accepted_length([found], np.asarray(tokens, np.int32)) == depth
    assert accepted_length([DraftTree.empty()], np.asarray(tokens, np.int32)) == 0


def test_heads_beside_retrieval_get_the_hidden_states_that_they_want() -> None:
    target = eagle_heads.tiny_target()
    settings = SamplingSettings(40, ignore_eos=True)
    head = eagle_heads.drafter_of(eagle_heads.trained_head(), capacity=300)
    drafter = HybridDrafter([PromptLookupDrafter(VOCAB)], [head])
    assert drafter.layers == head.layers
    run = eager_decoder(target, drafter, 16).generate(PROMPT, settings)
    list(run)
    assert run.tokens == alone(target, PROMPT, settings)
    assert drafter.stats()["failed"] == 0
    assert drafter.stats()["eagle: passes"] > 0


def test_without_networks_no_hidden_states_are_wanted() -> None:
    assert HybridDrafter([PromptLookupDrafter(VOCAB)]).layers == ()
    assert eager_decoder(Target.wrap(tiny_model()), HybridDrafter([PromptLookupDrafter(VOCAB)])).generate(
        PROMPT, SamplingSettings(4)
    )


def test_a_network_whose_certainties_never_come_true_loses_its_places_in_the_tree() -> None:
    """Beside an overconfident network, drafts of other sources are soon verified again."""
    sure = MadeUpDrafter(lambda request: tree([90, 91, 92, 93], [-1, 0, 1, 2], [1.0, 1.0, 1.0, 1.0]))
    drafter = HybridDrafter([store_of([[1, 2, 3, 4, 5, 6, 7, 8]])], [sure])
    request = DraftRequest(1, np.array([1, 2], np.int32), 4)
    first = drafter.propose([request])[0]
    for _ in range(60):
        drafter.propose([request])
        drafter.observe({1: np.array([3, 4, 5, 6, 9], np.int32)})
    last = drafter.propose([request])[0]
    assert 90 in first.tokens
    assert last.tokens.tolist() == [3, 4, 5, 6]
    drafter.close()


def asked_beside(expected: float, right: int, steps: int, seconds: float, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often a neural drafter runs in ``steps`` steps.

    Retrieval expects ``expected`` tokens and is right for ``right`` tokens. A plain token takes one second. The neural
    drafter's drafts of three tokens are right and take ``seconds``.
    """
    ticks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: seconds * next(ticks))
    own = tree([1, 2, 3], [-1, 0, 1], [0.9, 0.8, 0.7])
    network = GatedDrafter(MadeUpDrafter(lambda request: own), Confidence())
    retrieved = tree([1, 2, 3][:right], [-1, 0, 1][:right], [expected / max(right, 1)] * right)
    budget = DraftBudget(token_seconds=1.0, model_seconds=10.0, expected=expected)
    for _ in range(steps):
        network.add([DraftRequest(1, np.arange(9, dtype=np.int32), 8, budget=budget)], [retrieved])
        network.observe({1: np.array([1, 2, 3, 4], np.int32)})
    return int(network.stats()["ran"])


def test_a_neural_drafter_runs_while_it_adds_more_than_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked_beside(0.0, 0, 60, 0.1, monkeypatch) == 60
    assert asked_beside(2.0, 3, 300, 0.5, monkeypatch) < 40  # it adds nothing
    assert asked_beside(0.0, 0, 300, 5.0, monkeypatch) < 20  # three tokens for the time of five


def test_a_source_that_is_wrong_in_a_text_gives_way() -> None:
    """The scores of the wrong source fall in this text. The scores of the other source, and those in other texts, stay."""
    wrong, right = store_of([[1, 2, 50, 51, 52]]), store_of([[9, 1, 2, 3, 4, 5]])
    wrong.name, right.name = "wrong", "right"
    drafter = HybridDrafter([wrong, right])
    request = DraftRequest(1, np.array([9, 1, 2], np.int32), 16)

    def score(of: DraftRequest, token: int) -> float:
        [found] = drafter.propose([of])
        return float(found.scores[(found.tokens == token) & (found.parents < 0)].sum())

    before = score(request, 50)
    for _ in range(20):
        drafter.propose([request])
        drafter.observe({1: np.array([3, 4], np.int32)})
    fresh = score(replace(request, request_id=2), 50)
    assert score(request, 50) < 0.7 * fresh <= before
    drafter.close()
