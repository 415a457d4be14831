"""Tests the recurrent drafter in the step loop: unchanged output with any head, accepted drafts, and failing heads."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.neural.redrafter.model import RedrafterHead
from suffolk.serving.decoding.drafters.registry import source_bits
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.draft_budget import DraftBudget
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest, FeatureDrafter, SampledChain, tree_of
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.model.row_contexts import RowContexts
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.sampler import Sampler
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.drafters import alone, eager_decoder, eager_loop
from tests.support.heads import drafter_of, follow, last_states, random_head, request_for, texts_of, train, tree_behind
from tests.support.tiny_models import VOCAB, tiny_model

PROMPT = [(7 * number) % VOCAB for number in range(30)]


@pytest.fixture(scope="module")
def target() -> Target:
    return Target.wrap(tiny_model())


@pytest.fixture(scope="module")
def trained(target: Target) -> RedrafterHead:
    """A head trained for a few dozen steps on greedy answers."""
    batch = texts_of(target, 8, SamplingSettings(50))
    head = train(random_head(target), batch, 60, rate=0.02)
    losses = head.losses(batch)
    assert (losses.hits / losses.seen)[0] > 0.9
    return head


LAWS = [
    SamplingSettings(30),
    SamplingSettings(30, 0.8, seed=3),
    SamplingSettings(30, 1.0, top_k=20, top_p=0.9, seed=4, repetition_penalty=1.2),
]


@pytest.mark.parametrize("slots", [1, 2, 3])
@pytest.mark.parametrize("kind", ["random", "trained"])
def test_requests_that_join_and_leave_get_the_tokens_they_get_alone(
    target: Target, trained: RedrafterHead, kind: str, slots: int
) -> None:
    drafter = drafter_of(trained if kind == "trained" else random_head(target, 5), target)
    assert isinstance(drafter, FeatureDrafter)
    loop = eager_loop(target, {"redrafter": drafter}, slots)
    cases = [(PROMPT[number:], law) for number in (0, 9) for law in LAWS]
    waiting = [Request(number, target, *case, "redrafter", 12) for number, case in enumerate(cases)]
    requests = list(waiting)
    step = 0
    while waiting or loop.running:
        while waiting and loop.free and step % 3 != 1:
            loop.join(waiting.pop(0))
        if step == 7:
            loop.leave(loop.running[0])
        loop.step()
        step += 1
    for request, case in zip(requests, cases, strict=True):
        assert request.generated == alone(target, *case)[: len(request.generated)]
        assert request.stats.finish == "cancelled" or len(request.generated) == 30
        assert not request.stats.draft_failures
    assert sum(request.stats.finish == "cancelled" for request in requests) == 1
    if kind == "trained":
        assert all(sum(request.stats.accepted for request in requests[law::3]) > 0 for law in range(3))
    assert not drafter._states
    assert not drafter._read


def test_what_is_drafted_is_marked_and_accepted_far(target: Target, trained: RedrafterHead) -> None:
    prompt = [(1 + 5 * number) % VOCAB for number in range(6)]  # a text that it has learned
    run = eager_decoder(target, drafter_of(trained, target)).generate(prompt, SamplingSettings(50))
    marks = [source for step in run for source in step.sources]
    assert run.tokens == alone(target, prompt, SamplingSettings(50))
    assert set(marks) == {0, source_bits("redrafter")}
    assert run.stats.accepted > run.stats.steps  # more than one a step


@pytest.mark.parametrize("verification", ["match", "rejection"])
def test_trees_are_for_match_and_drawn_chains_for_rejection(target: Target, verification: str) -> None:
    drafter = drafter_of(random_head(target), target)
    follow(drafter, PROMPT)
    asked = request_for(PROMPT, temperature=1.0, top_k=30, verification=verification)
    [proposal] = drafter.propose([asked])
    tree = tree_of(proposal).validate(VOCAB)
    assert tree.depths().max() == 4
    assert isinstance(proposal, SampledChain) == (verification == "rejection")
    if isinstance(proposal, SampledChain):
        assert proposal.distributions.sum(1).tolist() == pytest.approx([1] * 4)
        assert ((proposal.distributions > 0).sum(1) == 30).all()
        assert all(proposal.distributions[row, token] > 0 for row, token in enumerate(tree.tokens.tolist()))
    else:
        assert len(tree) > 4
    drafter.release(1)
    follow(drafter, PROMPT)
    [greedy] = drafter.propose([request_for(PROMPT, verification=verification)])
    assert isinstance(greedy, DraftTree)
    assert len(greedy) > 4  # at temperature 0 the two verifications are one


def test_text_by_rejection_is_drafted_and_ends(target: Target, trained: RedrafterHead) -> None:
    drafter = drafter_of(trained, target)
    loop = eager_loop(target, {"redrafter": drafter}, slots=3)
    laws = [SamplingSettings(40, 0.7, seed=seed, verification="rejection") for seed in (1, 2)] + [SamplingSettings(40)]
    requests = [Request(number, target, PROMPT, law, "redrafter", 12) for number, law in enumerate(laws)]
    for request in requests:
        loop.join(request)
    while loop.running:
        loop.step()
    assert [len(request.generated) for request in requests] == [40] * 3
    assert not any(request.stats.draft_failures for request in requests)
    assert requests[0].stats.accepted + requests[1].stats.accepted > 0
    assert requests[2].generated == alone(target, PROMPT, laws[2])


def test_the_tree_is_that_of_a_plain_beam_search(target: Target) -> None:
    head = random_head(target)
    tree = tree_behind(drafter_of(head, target, width=3, length=3), PROMPT, max_nodes=50)
    feature = last_states(torch.tensor([PROMPT[:-1]]))[0, -1, 0]
    head.requires_grad_(False)
    beams: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    explored: set[tuple[int, ...]] = set()
    for _ in range(3):
        grown = []
        for text, total in beams:
            state = head.initial_state(torch.tensor(PROMPT[-2]))
            for token in (PROMPT[-1], *text):
                state = head.advance(state, torch.tensor(token))
            law = head.logits(feature, state).softmax(-1)
            grown += [((*text, token), total * float(law[token])) for token in range(VOCAB)]
        beams = sorted(grown, key=lambda beam: -beam[1])[:3]
        explored |= {text for text, _ in beams}
    texts: list[tuple[int, ...]] = []
    for token, parent in zip(tree.tokens.tolist(), tree.parents.tolist(), strict=True):
        texts.append((*texts[parent], token) if parent >= 0 else (token,))
    assert set(texts) == explored  # beams that were dropped also count, at no further step
    scores = dict(zip(texts, tree.scores.tolist(), strict=True))
    assert [scores[text] for text, _ in beams] == pytest.approx([total for _, total in beams], rel=1e-4)


@pytest.mark.parametrize("seed", range(6))
def test_the_best_beam_is_what_the_target_s_noise_would_draw(target: Target, seed: int) -> None:
    head = random_head(target)
    settings = SamplingSettings(temperature=1.3, top_k=50, repetition_penalty=1.1, seed=seed)
    drafter = drafter_of(head, target, length=2)
    follow(drafter, PROMPT)
    tokens = np.asarray(PROMPT, np.int32)
    [proposal] = drafter.propose([DraftRequest(1, tokens, 20, len(PROMPT) - 1, settings)])
    best = tree_of(proposal).tokens[tree_of(proposal).parents == -1][0]
    with torch.inference_mode():
        state = head.initial_state(torch.tensor(PROMPT[-2:-1]))
        logits, _ = head(last_states(torch.tensor([PROMPT[:-1]]))[0, -1], state, torch.tensor(PROMPT[-1:]))
        drawn = Sampler(settings, VOCAB, target.device).sample(logits, RowContexts.of_text(tokens, len(PROMPT) - 1))
    assert best == drawn.item()


def test_a_draft_keeps_to_the_request_s_bounds(target: Target) -> None:
    drafter = drafter_of(random_head(target), target)
    assert len(tree_behind(drafter, PROMPT, max_nodes=2)) == 2
    assert tree_behind(drafter, PROMPT, max_nodes=2).depths().max() <= 2
    assert len(tree_behind(drafter, PROMPT, max_nodes=0)) == 0
    assert (
        tree_behind(drafter, PROMPT, max_new_tokens=4).depths().max() == 2
    )  # one is sampled, the last is the target's
    assert len(tree_behind(drafter, PROMPT, max_new_tokens=2)) == 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nothing_is_drafted_behind_the_end_of_a_text(temperature: float) -> None:
    """Every token except one ends a text. No beam or chain continues after these tokens."""
    model = tiny_model()
    model.generation_config.eos_token_id = [token for token in range(VOCAB) if token != 50]
    target = Target.wrap(model)
    drafter = drafter_of(random_head(target), target)
    for verification in ("match", "rejection"):
        options = {"temperature": temperature, "verification": verification}
        tree = tree_behind(drafter, PROMPT, **options)
        inner = np.unique(tree.parents[tree.parents >= 0])
        assert len(tree)
        assert set(tree.tokens[inner].tolist()) <= {50}
        assert tree_behind(drafter, PROMPT, ignore_eos=True, **options).depths().max() == 4


def test_without_features_there_is_no_draft(target: Target) -> None:
    drafter = drafter_of(random_head(target), target)
    asked = request_for(PROMPT)
    assert len(tree_of(drafter.propose([asked])[0])) == 0
    follow(drafter, PROMPT[:-1])  # one too few
    assert len(tree_of(drafter.propose([asked])[0])) == 0
    assert drafter.stats()["failed Unavailable"] == 2
    drafter.release(1)
    assert len(tree_behind(drafter, PROMPT)) > 0
    assert drafter.stats()["failed"] == 2
    drafter.observe({1: np.array([3], np.int32)})  # of a request that has gone
    drafter.close()


@pytest.mark.parametrize("verification", ["match", "rejection"])
def test_a_head_that_breaks_costs_its_drafts_and_nothing_else(target: Target, verification: str) -> None:
    head = random_head(target)
    with torch.no_grad():
        head.output.weight.fill_(torch.nan)  # type: ignore[operator, union-attr]
    settings = SamplingSettings(12, 0.8, seed=5, verification=verification)
    run = eager_decoder(target, drafter_of(head, target)).generate(PROMPT, settings)
    steps = list(run)
    assert len(run.tokens) == 12
    assert (
        run.stats.draft_failures["InvalidArgument"] == len(steps) - 2
    )  # in the first and the last there is nothing to draft
    if verification == "match":
        assert run.tokens == alone(target, PROMPT, settings)


def test_a_dear_head_drafts_no_further_than_its_first_step(target: Target) -> None:
    """A step of this head takes as long as ten plain steps."""
    drafter = drafter_of(random_head(target), target, costs=CostModel([1], [10.0]))
    follow(drafter, PROMPT)
    asked = DraftRequest(1, np.asarray(PROMPT, np.int32), 8, len(PROMPT) - 1, budget=DraftBudget(token_seconds=1.0))
    assert len(tree_of(drafter.propose([asked])[0])) > 0
    assert drafter.stats()["passes"] == 1


class Constant(CostModel):
    """Costs that real passes do not correct."""

    def update(self, rows: int, requests: int, context: float, seconds: float) -> None:
        """Does nothing."""


@pytest.mark.parametrize(("most_seconds", "passes"), [(1.5, 1), (2.2, 2)])
def test_a_draft_takes_no_longer_than_it_may(target: Target, most_seconds: float, passes: int) -> None:
    drafter = drafter_of(random_head(target), target, costs=Constant([1, 64], [1.0, 1.0]))
    follow(drafter, PROMPT)
    drafter.propose(
        [
            DraftRequest(
                1,
                np.asarray(PROMPT, np.int32),
                8,
                len(PROMPT) - 1,
                budget=DraftBudget(token_seconds=1e6, model_seconds=most_seconds),
            )
        ]
    )
    assert drafter.stats()["passes"] == passes


@pytest.mark.parametrize("right", [True, False])
def test_what_it_is_told_becomes_its_confidence(target: Target, right: bool) -> None:
    """If the target always accepts the best token, the score of the best token rises.

    If the target accepts none, all scores fall.
    """
    drafter = drafter_of(random_head(target), target, width=3, length=1)
    before = tree_behind(drafter, PROMPT)
    other = next(token for token in range(VOCAB) if token not in before.tokens)
    for _ in range(60):
        follow(drafter, PROMPT)
        drafter.propose([request_for(PROMPT)])
        drafter.observe({1: np.array([before.tokens[0] if right else other, 5], np.int32)})
        drafter.release(1)
    after = tree_behind(drafter, PROMPT)
    assert after.tokens.tolist() == before.tokens.tolist()
    assert after.scores[0] > before.scores[0] if right else (after.scores < before.scores).all()
