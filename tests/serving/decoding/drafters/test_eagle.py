"""Tests EAGLE heads.

Trees equal chains without a cache, the engine's output is unchanged, and slots and capacity are respected.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.drafters.calibration.confidence import Confidence
from suffolk.serving.decoding.drafters.neural.eagle.drafter import EagleDrafter, measure_head
from suffolk.serving.decoding.drafters.neural.eagle.layer import causal
from suffolk.serving.decoding.drafters.neural.eagle.model import EagleHead
from suffolk.serving.decoding.drafters.registry import source_bits
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.draft_budget import DraftBudget
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest, FeatureDrafter
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.drafters import alone, eager_loop
from tests.support.eagle_heads import (
    FREE,
    PROMPT,
    batch_of,
    drafter_of,
    eagle_bounds,
    features_of,
    first_draft,
    own_texts,
    random_head,
    tiny_target,
    trained_head,
)
from tests.support.tiny_models import VOCAB, tiny_model


@torch.no_grad()
def chances_behind(head: EagleHead, tokens: list[int], path: list[int]) -> torch.Tensor:
    """Return float[vocab], the head's distribution after ``tokens`` and a drafted ``path``, computed without a cache."""
    hidden = head.fuse(features_of(tokens, head.layers))[:-1]
    read = tokens[1:]
    for token in [*path, None]:
        states = head.step(torch.tensor([read]), hidden[None], torch.arange(len(read)), causal)[0]
        if token is not None:
            read, hidden = [*read, token], torch.cat([hidden, states[-1:]])
    return head.logits(states[-1]).softmax(-1)


@pytest.mark.parametrize("version", [1, 3])
def test_a_tree_is_that_of_chains_read_without_a_cache(version: int) -> None:
    """Levels are expanded by the value of each path. Every node's score is the product of the head's own probabilities."""
    head = random_head(version)
    drafter = drafter_of(head, bounds=eagle_bounds(3, 4, 25))
    tree = first_draft(drafter, PROMPT)
    level: list[tuple[float, list[int]]] = [(1.0, [])]
    nodes: list[tuple[float, list[int]]] = []
    for _ in range(4):
        children = []
        for value, path in level:
            chances, tokens = chances_behind(head, PROMPT, path).topk(3)
            children += [
                (value * chance, [*path, token])
                for chance, token in zip(chances.tolist(), tokens.tolist(), strict=True)
            ]
        nodes += children
        level = sorted(children, key=lambda each: -each[0])[:3]
    expected = sorted(nodes, key=lambda each: -each[0])[:25]
    paths: list[list[int]] = []
    for token, parent in zip(tree.tokens.tolist(), tree.parents.tolist(), strict=True):
        paths.append([*(paths[parent] if parent >= 0 else []), token])
    assert paths == [path for _, path in expected]
    assert tree.scores.tolist() == pytest.approx([value for value, _ in expected], rel=1e-5)
    assert set(tree.sources.tolist()) == {source_bits("eagle")}
    assert drafter.stats()["passes"] <= 4
    first_draft(single := drafter_of(head), PROMPT, 1)  # nothing deeper could be kept
    assert single.stats()["passes"] == 1


def test_rejected_drafts_leave_no_trace() -> None:
    """After a rejected draft, the tree of the second step equals the tree of a new drafter."""
    head = random_head()
    text = [*PROMPT, 5, 17, 3]
    features = features_of(text, head.layers)
    drafter = drafter_of(head)
    drafter.follow(7, features[:29])
    drafter.propose([DraftRequest(7, np.asarray(PROMPT, np.int32), 20)])
    drafter.follow(7, features[29:32])
    (tree,) = drafter.propose([DraftRequest(7, np.asarray(text, np.int32), 20)])
    fresh = first_draft(drafter_of(head), text, 20)
    assert np.array_equal(tree.tokens, fresh.tokens)
    assert np.array_equal(tree.parents, fresh.parents)
    assert tree.scores == pytest.approx(fresh.scores)
    (again,) = drafter.propose([DraftRequest(7, np.asarray(text, np.int32), 20)])  # nothing new to read
    assert np.array_equal(again.tokens, fresh.tokens)


@pytest.mark.parametrize("place", [1, 2])
def test_a_pass_that_failed_is_made_again(monkeypatch: pytest.MonkeyPatch, place: int) -> None:
    """Regression: a failed pass used to lose its hidden states. All requests of the batch then got no more drafts."""
    head = random_head(1)
    drafter = drafter_of(head)
    drafter.follow(7, features_of(PROMPT, head.layers)[:-1])
    request = DraftRequest(7, np.asarray(PROMPT, np.int32), 20)
    step, made = head.step, []

    def fail(*args: Any) -> torch.Tensor:
        made.append(args)
        if len(made) == place:
            raise RuntimeError("no memory")
        return step(*args)

    with monkeypatch.context() as patch:
        patch.setattr(head, "step", fail)
        with pytest.raises(RuntimeError, match="no memory"):
            drafter.propose([request])
    (tree,) = drafter.propose([request])
    assert tree.tokens.tolist() == first_draft(drafter_of(head), PROMPT, 20).tokens.tolist()


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize(("version", "trained"), [(1, False), (1, True), (3, True)])
def test_the_text_is_the_target_s_own(version: int, trained: bool, temperature: float) -> None:
    """Five requests share up to three slots. They join and leave, and read their prompts while others draft."""
    target = tiny_target()
    head = trained_head(version) if trained else random_head(version)
    drafter = drafter_of(head, slots=3, bounds=eagle_bounds(4, 4, 20))
    assert isinstance(drafter, FeatureDrafter)
    loop = eager_loop(target, {"eagle": drafter}, slots=3)
    prompts = [[3, 1, 4], PROMPT, PROMPT[3:20], own_texts()[0, :9].tolist(), [7]]
    waiting = [
        Request(number, target, prompt, SamplingSettings(16 + 5 * number, temperature, seed=number), "eagle", 20)
        for number, prompt in enumerate(prompts)
    ]
    requests, together = list(waiting), set()
    while waiting or loop.running:
        if waiting and loop.free:
            loop.join(waiting.pop(0))
        together.add(len(loop.running))
        loop.step()
    assert together == {1, 2, 3}
    for request, prompt in zip(requests, prompts, strict=True):
        assert request.generated == alone(target, prompt, request.settings)
        assert not request.stats.draft_failures
    accepted = sum(request.stats.accepted for request in requests)
    drafted = sum(request.stats.steps for request in requests)
    assert accepted > (0.1 * drafted if trained else 0)


def test_training_raises_acceptance_at_every_depth() -> None:
    before, after = (head.losses(batch_of(own_texts(), (2,))) for head in (random_head(), trained_head()))
    assert after.loss.item() < 0.5 * before.loss.item()
    assert after.hits[0] / after.seen[0] > 0.4 > 0.1 > before.hits[0] / before.seen[0]
    assert bool((after.hits >= before.hits).all())
    assert after.seen[0] == 160 * 14


def test_at_a_temperature_the_head_shares_the_target_s_noise() -> None:
    """First tokens that the head samples with the target's noise are accepted far more often than its likeliest tokens."""
    head, target = trained_head(), tiny_target()
    settings = [SamplingSettings(1, 1.5, seed=seed) for seed in range(60)]
    drawn = [alone(target, PROMPT, each)[0] for each in settings]
    plain = first_draft(drafter_of(head), PROMPT, 1).tokens[0]
    noisy = [first_draft(drafter_of(head), PROMPT, 1, temperature=1.5, seed=each.seed).tokens[0] for each in settings]
    hits = sum(int(a == b) for a, b in zip(drawn, noisy, strict=True))
    assert hits > sum(int(a == plain) for a in drawn) + 5


def test_requests_beyond_its_slots_or_its_capacity_go_without_drafts() -> None:
    """Regression: a text that outgrew its slot used to be compared to its last tree in every further step.

    This gave wrong evidence.
    """
    settings, target = SamplingSettings(20), tiny_target()
    drafter = drafter_of(trained_head(), slots=1, capacity=90, bounds=eagle_bounds(2, 4, 8))
    loop = eager_loop(target, {"eagle": drafter}, slots=2)
    short, long = PROMPT[:20], PROMPT * 3
    first = Request(1, target, short, settings, "eagle", 8)
    second = Request(2, target, PROMPT, settings, "eagle", 8)
    loop.join(first)
    loop.join(second)
    while loop.running:
        loop.step()
    assert first.generated == alone(target, short, settings)
    assert second.generated == alone(target, PROMPT, settings)
    assert not first.stats.draft_failures
    assert second.stats.draft_failures["ResourceExhausted"] > 0
    assert second.stats.accepted == 0
    third = Request(3, target, long, settings, "eagle", 8)  # the slot is free again, but too small
    loop.join(third)
    while loop.running:
        loop.step()
    assert third.generated == alone(target, long, settings)
    assert third.stats.draft_failures["ResourceExhausted"] > 0
    known = Confidence()
    drafter.calibrate(known)
    fourth = Request(4, target, long[:75], settings, "eagle", 8)  # outgrows the slot while it is decoded
    loop.join(fourth)
    while loop.running:
        failed, learned = drafter.stats()["failed"], known.state()
        loop.step()
        if drafter.stats()["failed"] > failed:
            assert np.array_equal(known.state(), learned)
    assert fourth.generated == alone(target, long[:75], settings)
    assert fourth.stats.draft_failures["ResourceExhausted"] > 1
    assert learned.any()
    assert drafter.stats()["failed"] == drafter.failures.by_reason.total() > 0


def test_a_long_prompt_is_read_in_parts() -> None:
    target = Target.wrap(tiny_model(max_position_embeddings=2048))
    head = random_head(target=target)
    tokens = np.resize(np.asarray(PROMPT, np.int32), 1200)
    drafter = drafter_of(head, capacity=2000)
    features = torch.randn(1199, 1, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for part in torch.split(features, 500):
        drafter.follow(1, part)
    trees = [drafter.propose([DraftRequest(1, tokens, 8)])[0] for _ in range(3)]
    assert [len(tree) for tree in trees] == [0, 0, 8]
    assert drafter.stats()["prefill_seconds"] > 0
    with torch.no_grad():
        whole = head.step(torch.tensor(tokens[None, 1:]).long(), head.fuse(features)[None], torch.arange(1199), causal)[
            0
        ]
        likeliest = head.logits(whole[-1]).argmax()
    assert trees[2].tokens[0] == int(likeliest)


def test_reading_a_prompt_says_nothing_of_what_trees_cost() -> None:
    """Regression: after one long prompt, the estimated cost of trees used to be a tenth of the true cost.

    Few rows of a prompt compute logits.
    """
    costs = CostModel([1, 64], [1.0, 1.0])
    drafter = drafter_of(random_head(), capacity=2000, costs=costs)
    drafter.follow(1, torch.randn(599, 1, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    drafter.propose([DraftRequest(1, np.resize(np.asarray(PROMPT, np.int32), 600), 8)])
    assert drafter.stats()["passes"] == 1
    assert costs.time(64, 1, 128) == costs.time(1, 1, 128) == 1.0


def test_without_hidden_states_there_is_no_draft() -> None:
    drafter = drafter_of(random_head())
    request = DraftRequest(1, np.asarray(PROMPT, np.int32), 8)
    assert len(drafter.propose([request])[0]) == 0
    drafter.follow(1, features_of(PROMPT, (2,))[:20])
    assert len(drafter.propose([request])[0]) == 0
    assert drafter.failures.by_reason["Unavailable"] == 2
    drafter.follow(1, features_of(PROMPT, (2,))[20:29])
    assert len(drafter.propose([request])[0]) == 8
    drafter.close()
    assert len(drafter.propose([request])[0]) == 0


def test_a_dear_head_drafts_no_further_than_its_first_pass() -> None:
    """A pass of this head takes as long as ten plain steps."""
    drafter = drafter_of(random_head(), costs=CostModel([1], [10.0]))
    drafter.follow(1, features_of(PROMPT, (2,))[:-1])
    request = DraftRequest(1, np.asarray(PROMPT, np.int32), 8, budget=DraftBudget(token_seconds=1.0))
    assert len(drafter.propose([request])[0]) > 0
    assert drafter.stats()["passes"] == 1


@pytest.mark.parametrize(("most_seconds", "passes"), [(1.5, 1), (2.2, 2)])
def test_a_draft_takes_no_longer_than_it_may(most_seconds: float, passes: int) -> None:
    drafter = drafter_of(random_head(), costs=CostModel([1, 64], [1.0, 1.0]))
    drafter.follow(1, features_of(PROMPT, (2,))[:-1])
    request = DraftRequest(
        1, np.asarray(PROMPT, np.int32), 8, budget=DraftBudget(token_seconds=1e6, model_seconds=most_seconds)
    )
    assert len(drafter.propose([request])[0]) > 0
    assert drafter.stats()["passes"] == passes


def test_costs_are_measured_if_none_are_given() -> None:
    costs = measure_head(random_head(), slots=4, budget=0.0)
    assert 0 < costs.time(1, 1, 100) <= costs.time(64, 1, 1000) < 10


def test_a_slot_too_small_for_a_tree_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="capacity is 51; .* 52 or more"):
        EagleDrafter(random_head(), capacity=51, costs=FREE)


@pytest.mark.parametrize("version", [1, 3])
def test_bf16_heads_draft(version: int) -> None:
    target = Target.wrap(tiny_model().to(torch.bfloat16))
    head: Any = random_head(version, target=target).to(torch.bfloat16)
    drafter = drafter_of(head)
    drafter.follow(1, features_of(PROMPT, drafter.layers, target)[:-1])
    (tree,) = drafter.propose([DraftRequest(1, np.asarray(PROMPT, np.int32), 30)])
    tree.validate(VOCAB)
    assert len(tree) == 30
    assert tree.depths().max() > 1
