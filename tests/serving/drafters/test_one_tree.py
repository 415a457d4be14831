"""Retrieved and neural drafts in one tree: marks, learning, and networks that are left out where they add too little."""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import replace

import numpy as np
import pytest

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.drafters.calibration.confidence import Confidence
from suffolk.serving.drafters.hybrid.accepted_length import reach
from suffolk.serving.drafters.hybrid.drafter import HybridDrafter
from suffolk.serving.drafters.hybrid.gated_drafter import GatedDrafter
from suffolk.serving.drafters.hybrid.merge import merge as merge_trees
from suffolk.serving.drafters.neural.draft_model.drafter import DraftModelDrafter
from suffolk.serving.drafters.neural.tree_bounds import TreeBounds
from suffolk.serving.drafters.registry import source_bits
from suffolk.serving.drafters.retrieval.datastore import DatastoreDrafter
from suffolk.serving.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.engine.loop.drafter import DraftRequest
from suffolk.serving.engine.loop.request import Request
from suffolk.serving.engine.loop.step_loop import StepLoop
from suffolk.serving.engine.model.target import Target
from suffolk.serving.engine.sampling.settings import SamplingSettings
from tests.support import eagle_heads
from tests.support.brute_force import BruteForceRetriever
from tests.support.drafters import Booked, Free, MadeUpDrafter, alone, eager_decoder, tree
from tests.support.drafting_oracle import merge, nodes
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
    assert stats["draft-model: asked"] == stats["draft-model: calls"] == stats["datastore: calls"] == 1
    drafter.close()


def test_what_one_does_not_know_the_other_adds() -> None:
    """The datastore knows the answer's second half, the network is right everywhere: M is the network's at least."""
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


def test_opinions_are_pooled_before_trees_are_cut() -> None:
    """What a source thinks of a token that is not among its own best still counts, and is no more work for it."""
    asked: list[DraftRequest] = []

    def network(source: int, scores: list[float]) -> MadeUpDrafter:
        flat = tree(list(range(len(scores))), [-1] * len(scores), scores)
        made = replace(flat, sources=np.full(len(scores), source, np.uint32))
        return MadeUpDrafter(lambda request: (asked.append(request), made)[1])

    trees = [(source_bits("eagle"), [0.1, 0.2, 0.25, 0.3]), (source_bits("draft-model"), [0.4, 0.1, 0.15, 0.2, 0.05])]
    networks = [network(source, scores) for source, scores in trees]
    request = DraftRequest(1, np.asarray(PROMPT, np.int32), 2)
    [found] = HybridDrafter([], networks).propose([request])
    raw = [each.propose([request])[0] for each in networks]
    assert nodes(found) == [(path, pytest.approx(score), marks) for path, score, marks in merge(raw, 2)]
    best = [each.head(2) for each in map(sorted_tree, raw)]
    assert nodes(found) != nodes(merge_trees(best, 2))
    assert {(each.max_nodes, each.most_named) for each in asked[:2]} == {(2, 64)}


def sorted_tree(flat: DraftTree) -> DraftTree:
    order = np.argsort(-flat.scores, kind="stable")
    return DraftTree(flat.tokens[order], flat.parents[order], flat.scores[order], flat.sources[order])


def test_what_retrieval_brought_the_last_requests_is_known_when_one_begins() -> None:
    """Steps without a draft model were once lost in each answer, a second in ten of a 1.5B model's."""
    asked: list[DraftRequest] = []
    flat = tree([1, 2, 3], [-1, 0, 1], [0.9, 0.8, 0.7])
    network = GatedDrafter(MadeUpDrafter(lambda request: (asked.append(request), flat)[1]), Confidence())

    def step(number: int, retrieved: DraftTree, said: list[int]) -> int:
        """How many drafts the network has made so far."""
        request = DraftRequest(number, np.arange(9, dtype=np.int32), 8, token_seconds=1.0, most_seconds=1.0)
        network.add([request], [retrieved])
        network.observe(number, np.array(said, np.int32))
        return len(asked)

    assert [step(1, DraftTree.empty(), [1, 2, 3, 4]) for _ in range(8)] == [0, 0, 0, 0, 0, 0, 1, 2]
    network.release(1)
    assert step(2, tree([1], [-1], [0.1]), [1, 2, 3, 4]) == 3
    assert asked[-1].already == (0,) * 16
    for count in range(4, 20):
        assert step(2, tree([1], [-1], [0.1]), [1, 2, 3, 4]) == count
    assert asked[-1].already == (1,) * 16  # by now its own steps tell


def test_one_lucky_burst_of_retrieval_is_not_taken_for_a_habit() -> None:
    """(1, 10, 0) kept a draft model out of a whole answer in which retrieval brought little more."""
    asked: list[DraftRequest] = []
    flat = tree([1], [-1], [0.9])
    network = GatedDrafter(MadeUpDrafter(lambda request: (asked.append(request), flat)[1]), Confidence())
    retrieved = tree(list(range(1, 11)), list(range(-1, 9)), [0.9] * 10)
    for said in ([9], [*range(1, 11), 0], *[[9]] * 4):
        network.add(
            [DraftRequest(1, np.arange(9, dtype=np.int32), 16, token_seconds=1.0, most_seconds=1.0)], [retrieved]
        )
        network.observe(1, np.array(said, np.int32))
    network.add(
        [DraftRequest(1, np.arange(9, dtype=np.int32), 16, token_seconds=1.0, most_seconds=1.0)], [DraftTree.empty()]
    )
    assert asked[-1].already == (0, 10, 0, 0, 0, 0, *[0] * 5)


def test_requests_that_go_otherwise_do_not_tell_what_retrieval_brings() -> None:
    """Ten tokens a step in one answer kept a draft model out of the next, in which retrieval brought none: half of the speed."""
    asked: list[DraftRequest] = []
    flat = tree([1], [-1], [0.9])
    network = GatedDrafter(MadeUpDrafter(lambda request: (asked.append(request), flat)[1]), Confidence())
    retrieved = tree(list(range(1, 11)), list(range(-1, 9)), [0.9] * 10)

    def step(number: int, said: list[int]) -> None:
        request = DraftRequest(number, np.arange(9, dtype=np.int32), 16, token_seconds=1.0, most_seconds=math.inf)
        network.add([request], [retrieved])
        network.observe(number, np.array(said, np.int32))

    for _ in range(5):
        step(1, [*range(1, 11), 0])
    network.release(1)
    step(2, [9])
    assert sum(asked[-1].already) > 20  # it may go on like that
    step(2, [9])
    step(2, [9])
    assert sum(asked[-1].already) == 0  # or not
    network.release(2)
    for _ in range(3):
        step(3, [*range(1, 11), 0])
    assert asked[-1].already == (10,) * 16


def test_requests_with_prompts_alike_tell_what_retrieval_brings() -> None:
    """Functions were completed by copying the prompt, and each prompt was read by a draft model in vain."""
    asked: list[DraftRequest] = []
    flat = tree([1], [-1], [0.9])
    network = GatedDrafter(MadeUpDrafter(lambda request: (asked.append(request), flat)[1]), Confidence())
    retrieved = tree(list(range(1, 11)), list(range(-1, 9)), [0.9] * 10)
    prompts = {"complete": np.arange(30, dtype=np.int32), "explain": np.arange(100, 130, dtype=np.int32)}

    def step(number: int, kind: str, said: list[int]) -> None:
        tokens = np.append(prompts[kind], np.int32(number))
        network.add([DraftRequest(number, tokens, 16, prompt_tokens=30, token_seconds=1.0)], [retrieved])
        network.observe(number, np.array(said, np.int32))

    for number, (kind, said) in enumerate([("complete", [*range(1, 11), 0]), ("explain", [9])]):
        for _ in range(5):
            step(number, kind, said)
        network.release(number)
    asked.clear()
    step(2, "complete", [9])
    step(3, "explain", [9])
    assert np.mean(asked[0].already) > 5 > 1 > np.mean(asked[1].already)
    network.close()


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
    assert sum(offer.network_seconds for offer in planner.offers) == pytest.approx(drafter.stats()["network_seconds"])
    assert all(offer.seconds > 0 for offer in planner.offers)
    owed, accepted = (sum(getattr(offer, what) for offer in planner.offers) for what in ("owed", "accepted"))
    known = request.stats.to_dict()["earned_by_source"]
    of_network = sum(tokens for bits, tokens in known.items() if int(bits) == source_bits("draft-model"))
    assert 0 < of_network <= owed < accepted
    drafter.close()


def test_what_retrieval_names_and_nobody_would_verify_is_no_reason_to_leave_a_network_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It names many nodes of little chance, one of which is often right: networks were taken to add nothing beside them."""
    ticks = itertools.count()  # a draft takes 5 ms: one that takes nothing is worth any gain
    monkeypatch.setattr(time, "perf_counter", lambda: 0.005 * next(ticks))
    retrieved = tree([1, 2, 3], [-1, 0, 1], [0.05, 0.04, 0.03])
    asked = {}
    for row_seconds in (0.0, 0.01):
        network = GatedDrafter(
            MadeUpDrafter(lambda request: tree([1, 2, 3], [-1, 0, 1], [0.9, 0.8, 0.7])), Confidence()
        )
        request = DraftRequest(
            1, np.arange(9, dtype=np.int32), 8, token_seconds=0.1, most_seconds=1.0, row_seconds=row_seconds
        )
        for _ in range(60):
            network.add([request], [retrieved])
            network.observe(1, np.array([1, 2, 3, 4], np.int32))
        asked[row_seconds] = network.stats()["asked"]
    assert asked[0.01] > 50
    assert asked[0.0] < asked[0.01]


def test_what_networks_are_thanked_for_is_told_by_what_would_have_been_verified() -> None:
    target = Target.wrap(tiny_model())
    answer = alone(target, PROMPT, SamplingSettings(6))
    drafter = HybridDrafter([store_of([[*PROMPT, *answer]])], [draft_model(target)])
    request = DraftRequest(1, np.asarray(PROMPT, np.int32), 16, len(PROMPT))
    [found] = drafter.propose([request])
    both = (found.sources == source_bits("datastore+draft-model")) | (found.sources == source_bits("datastore"))
    assert both.any()
    assert not drafter.owed(1, found)[both].any()
    [found] = drafter.propose([replace(request, token_seconds=1.0, row_seconds=1.0)])
    assert drafter.owed(1, found)[:4].all()
    assert len(drafter.owed(1, found.head(3))) == 3
    drafter.close()


def test_a_network_that_may_take_no_time_is_not_run() -> None:
    calls: list[DraftRequest] = []
    network = GatedDrafter(
        MadeUpDrafter(lambda request: (calls.append(request), tree([1], [-1], [1.0]))[1]), Confidence()
    )
    request = DraftRequest(1, np.arange(9, dtype=np.int32), 8, token_seconds=1.0, most_seconds=0.0)
    for _ in range(300):
        assert network.add([request], [DraftTree.empty()]) == [[]]
        network.observe(1, np.array([1], np.int32))
    assert not calls
    assert network.stats()["skipped"] == 300


def test_a_network_that_adds_nothing_to_what_is_retrieved_is_left_out() -> None:
    retrieved = tree([1, 2, 3], [-1, 0, 1], [1.0, 0.9, 0.8])
    network = GatedDrafter(MadeUpDrafter(lambda request: retrieved), Confidence())
    request = DraftRequest(1, np.arange(9, dtype=np.int32), 8, token_seconds=1e-12, most_seconds=1.0)
    asked = []
    for _ in range(40):
        asked.append(len(network.add([request], [retrieved])[0]) > 0)
        network.observe(1, np.array([1, 2, 3, 4], np.int32))
    assert (
        asked == [False] * 6 + [True] * 2 + [False] * 32
    )  # once to learn its time, once at that; it is asked once it is known how far retrieval gets
    assert network.stats()["skipped"] == 32


def test_large_promises_that_one_text_broke_are_believed_less_in_the_next() -> None:
    """Where retrieval promised two tokens or more a draft model was not asked, and most steps brought one."""
    burst = tree([1, 2, 3], [-1, 0, 1], [1.0, 0.9, 0.8])
    network = GatedDrafter(MadeUpDrafter(lambda request: tree([7], [-1], [0.5])), Confidence())

    def promised(number: int) -> float:
        request = DraftRequest(number, np.arange(9, dtype=np.int32), 8, token_seconds=1.0, most_seconds=1.0)
        network.add([request], [burst])
        found = network.verdicts[number].promised if number in network.verdicts else math.nan
        network.observe(number, np.array([4], np.int32))
        return found

    for _ in range(20):
        promised(1)
    network.release(1)
    assert promised(2) < 1.0 < float(burst.scores.sum())


@pytest.mark.parametrize(("tokens", "depth"), [([5], 0), ([1], 1), ([1, 3, 9], 2), ([1, 2, 4], 2), ([1, 2, 4, 6], 2)])
def test_how_far_a_text_follows_a_tree(tokens: list[int], depth: int) -> None:
    found = tree([1, 2, 3, 7], [-1, 0, 0, 1])
    assert reach(found, np.asarray(tokens, np.int32)) == depth
    assert reach(DraftTree.empty(), np.asarray(tokens, np.int32)) == 0


def test_heads_beside_retrieval_get_the_hidden_states_that_they_want() -> None:
    target = eagle_heads.tiny_target()
    settings = SamplingSettings(40, ignore_eos=True)
    head = eagle_heads.drafter_of(eagle_heads.trained_head(), capacity=300)
    drafter = HybridDrafter([PromptLookupDrafter(VOCAB)], [head])
    assert drafter.layers == head.layers
    run = eager_decoder(target, drafter, 16).generate(PROMPT, settings)
    list(run)
    assert run.tokens == alone(target, PROMPT, settings)
    assert drafter.stats()["missed"] == 0
    assert drafter.stats()["eagle: passes"] > 0


def test_without_networks_no_hidden_states_are_wanted() -> None:
    assert HybridDrafter([PromptLookupDrafter(VOCAB)]).layers == ()
    assert eager_decoder(Target.wrap(tiny_model()), HybridDrafter([PromptLookupDrafter(VOCAB)])).generate(
        PROMPT, SamplingSettings(4)
    )


def test_a_network_whose_certainties_never_come_true_loses_its_places_in_the_tree() -> None:
    """What others drafted is verified again, however sure of itself a network is."""
    sure = MadeUpDrafter(lambda request: tree([90, 91, 92, 93], [-1, 0, 1, 2], [1.0, 1.0, 1.0, 1.0]))
    drafter = HybridDrafter([store_of([[1, 2, 3, 4, 5, 6, 7, 8]])], [sure])
    request = DraftRequest(1, np.array([1, 2], np.int32), 4)
    first = drafter.propose([request])[0]
    for _ in range(60):
        drafter.propose([request])
        drafter.observe(1, np.array([3, 4, 5, 6, 9], np.int32))
    last = drafter.propose([request])[0]
    assert 90 in first.tokens
    assert last.tokens.tolist() == [3, 4, 5, 6]
    drafter.close()
