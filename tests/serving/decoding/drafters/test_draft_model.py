"""Tests a draft model: trees that grow level by level, the target's noise, cached rows, and rejected models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.drafters.neural.draft_model.drafter import BOUNDS, DraftModelDrafter
from suffolk.serving.decoding.drafters.neural.tree_bounds import TreeBounds
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.draft_budget import DraftBudget
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.model.pass_result import PassResult
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout, lay_out
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.drafters import Free, alone, eager_decoder, eager_loop, random_tree
from tests.support.forced_split import force
from tests.support.tiny_models import FAMILIES, VOCAB, tiny_model

PROMPT = [(7 * number) % VOCAB for number in range(30)]


def draft_model(model: Any = None, bounds: TreeBounds = BOUNDS, **options: Any) -> DraftModelDrafter:
    """Create a drafter whose passes cost nothing, by default with the target's weights."""
    target = Target.wrap(model or tiny_model())
    return DraftModelDrafter(target, VOCAB, bounds=bounds, **({"capacity": 300, "costs": Free()} | options))


def noisy_copy(noise: float, seed: int = 1) -> Any:
    """Return the target with perturbed weights, which is often but not always correct."""
    model = tiny_model()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += noise * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    return model


@pytest.mark.parametrize("attention", ["masked", "split"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_tree_read_in_two_passes_equals_one_read_at_once(
    family: str, attention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text is longer than the sliding window.

    The second pass may attend only to those rows of the first pass that are ancestors.
    """
    force(attention, monkeypatch)
    target = Target.wrap(tiny_model(family))
    tree = random_tree(np.random.default_rng(2), 12, VOCAB)
    cache = target.new_cache(2, 64)
    target.prefill(PROMPT[:-1], cache, 1)
    whole = lay_out(PROMPT[-1], tree)
    expected = target.forward(cache, [1], [whole], [13]).logits
    assert whole.visible is not None
    first = TreeLayout(whole.tokens[:5], whole.depths[:5], whole.visible[:5, :5])
    second = TreeLayout(whole.tokens[5:], whole.depths[5:], whole.visible[5:], whole.depths[:5])
    found = [target.forward(cache, [1], [part], [len(part)]).logits for part in (first, second)]
    assert (torch.cat(found) - expected).abs().max() < 1e-4 if family == "gemma2" else 1e-9
    behind = TreeLayout(whole.tokens[:2], np.array([9, 10]), None, whole.depths)  # a chain attends to all earlier rows
    seen = np.tri(2, 15, 13, dtype=np.bool_)
    told = TreeLayout(whole.tokens[:2], np.array([9, 10]), seen, whole.depths)
    pair = [target.forward(cache, [1], [layout], [2]).logits for layout in (behind, told)]
    assert torch.equal(*pair)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_target_s_own_weights_are_always_right(temperature: float) -> None:
    """A drafter with the target's weights is right at any temperature. Both models sample with the same noise."""
    settings = SamplingSettings(45, temperature, top_k=20, repetition_penalty=1.2, seed=3)
    drafter = draft_model(bounds=TreeBounds(max_depth=8, width=1, children=1))
    target = Target.wrap(tiny_model())
    run = eager_decoder(target, drafter).generate(PROMPT, settings)
    list(run)
    assert run.tokens == alone(target, PROMPT, settings)
    assert run.stats.steps == 5
    assert run.stats.accepted == 39


def test_a_draft_that_is_sure_goes_sixteen_tokens_ahead() -> None:
    """Regression: drafts used to end after eight tokens, although every second draft was right to its end."""
    sure = tiny_model()
    with torch.no_grad():
        sure.get_output_embeddings().weight *= 100
    drafter = draft_model(sure)
    [tree] = drafter.propose([DraftRequest(1, np.asarray(PROMPT, np.int32), 64)])
    assert tree.depths().max() == 16
    drafter.close()


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_each_token_is_read_once(temperature: float) -> None:
    """Accepted nodes keep their cache rows. So a draft reads only new tokens and its own nodes, each once."""
    drafter, read = draft_model(noisy_copy(0.02), TreeBounds(max_depth=4, width=1, children=1)), []
    model = drafter.model
    forward = Target.forward

    def spy(self: Target, cache: Any, slots: Sequence[int], layouts: Sequence[TreeLayout], *rest: Any) -> PassResult:
        if self is model:
            read.append((int(cache.lengths[slots[0]]), len(layouts[0]), len(layouts[0].earlier)))
        return forward(self, cache, slots, layouts, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Target, "forward", spy)
        run = eager_decoder(Target.wrap(tiny_model()), drafter).generate(PROMPT, SamplingSettings(60, temperature))
        list(run)
    assert 0 < run.stats.accepted < 59
    heads = [(cached, rows) for cached, rows, earlier in read if not earlier and rows > 0]
    drafts = [rows for _, rows, earlier in read if earlier]
    assert set(drafts) == {1}
    firsts = [each for number, each in enumerate(heads) if not number or each[0] > heads[number - 1][0]]
    assert firsts[0] == (0, len(PROMPT) + 1)
    assert all(rows <= 2 for cached, rows in firsts[1:])  # the last token, and a last node that has no row


def test_trees_branch_and_their_scores_are_chances() -> None:
    drafter = draft_model(bounds=TreeBounds(max_depth=3, width=4, children=3))
    [tree] = drafter.propose([DraftRequest(1, np.asarray(PROMPT, np.int32), 20)])
    tree.validate(VOCAB)
    assert len(tree) == 20
    assert tree.depths().max() == 3
    assert len({tuple(each) for each in zip(tree.parents.tolist(), tree.tokens.tolist(), strict=True)}) == 20
    roots = tree.scores[tree.parents == -1]
    assert 0 < roots.sum() <= 1 + 1e-6


def test_requests_beyond_its_slots_or_its_capacity_go_without_drafts() -> None:
    settings = SamplingSettings(20)
    target = Target.wrap(tiny_model())
    drafter = draft_model(slots=1, capacity=122)
    loop = eager_loop(target, {"draft-model": drafter}, slots=3)
    prompts = {1: PROMPT, 2: PROMPT[5:], 3: PROMPT * 3}
    expected = {number: alone(target, prompt, settings) for number, prompt in prompts.items()}
    requests = [Request(number, target, prompt, settings, "draft-model", 8) for number, prompt in prompts.items()]
    for request in requests:
        loop.join(request)
    while loop.running:
        loop.step()
    assert {request.number: request.generated for request in requests} == expected
    assert requests[0].stats.accepted > 10
    assert requests[1].stats.accepted < 19  # its draft starts after the end of the first
    assert requests[1].stats.draft_failures["ResourceExhausted"] > 1
    loop.join(again := Request(4, target, PROMPT[5:], settings, "draft-model", 8))  # the slot is free again
    while loop.running:
        loop.step()
    assert again.generated == expected[2]
    assert again.stats.accepted > 10


def test_words_that_a_draft_model_lacks_do_not_stop_it() -> None:
    """Regression: all drafts used to fail if a banned word of the target has ids that the draft model lacks."""
    found = []
    for words in (((5, 7),), ((VOCAB - 1,), (3, VOCAB - 1), (5, 7))):
        settings = SamplingSettings(45, bad_words=words)
        request = DraftRequest(1, np.arange(30, dtype=np.int32), 8, 30, settings)
        found += draft_model(tiny_model(vocab_size=80)).propose([request])
    assert found[0].tokens.tolist() == found[1].tokens.tolist() != []


def test_a_text_with_a_token_that_it_lacks_goes_without_drafts_and_is_counted() -> None:
    """Regression: the reason for the missing drafts used not to be reported."""
    drafter = draft_model(tiny_model(vocab_size=80))
    [tree] = drafter.propose([DraftRequest(1, np.asarray([1, 2, 85], np.int32), 8, 3)])
    assert len(tree) == 0
    assert drafter.stats()["failed Unsupported"] == 1


def test_a_text_that_cannot_be_made_takes_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: each step of this request used to leak a slot, until no request could get one."""
    drafter = draft_model(slots=2)
    asked = [DraftRequest(number, np.arange(30, dtype=np.int32), 8, 30) for number in (1, 2)]
    with monkeypatch.context() as patched:
        patched.setattr("suffolk.serving.decoding.drafters.neural.draft_state.drafter_sampler", broken)
        for _ in range(3):
            with pytest.raises(RuntimeError, match="no memory"):
                drafter.propose(asked)
    assert all(len(tree) for tree in drafter.propose(asked))
    assert not drafter.failures.by_reason


def broken(*_: Any) -> Any:
    raise RuntimeError("no memory")


def test_a_pass_that_failed_leaves_no_rows() -> None:
    """Regression: rows that a failed pass had not written used to be kept as valid.

    The target can accept nodes of this pass, if other drafters propose the same tokens.
    """
    drafter, fresh = (draft_model(bounds=TreeBounds(max_depth=4, width=1, children=1)) for _ in range(2))
    request = DraftRequest(1, np.arange(30, dtype=np.int32), 8, 30)
    [expected] = fresh.propose([request])
    forward, made = Target.forward, []

    def fail_at_the_tree(self: Target, *args: Any) -> PassResult:
        made.append(self)
        if len(made) == 2:
            raise RuntimeError("no memory")
        return forward(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Target, "forward", fail_at_the_tree)
        with pytest.raises(RuntimeError, match="no memory"):
            drafter.propose([request])
    for each in (drafter, fresh):
        each.observe({1: expected.tokens[:3]})
    later = replace(request, tokens=np.append(request.tokens, expected.tokens[:3]))
    [found], [expected] = drafter.propose([later]), fresh.propose([later])
    assert found.tokens.tolist() == expected.tokens.tolist()


def test_a_long_prompt_is_read_in_parts() -> None:
    target = Target.wrap(tiny_model(max_position_embeddings=2048))
    drafter = draft_model(tiny_model(max_position_embeddings=2048), capacity=2000)
    request = DraftRequest(1, np.resize(np.asarray(PROMPT, np.int32), 1200), 8, 1200)
    sizes = [len(drafter.propose([request])[0]) for _ in range(3)]
    assert sizes == [0, 0, 8]
    assert drafter.stats()["prefill_seconds"] > 0
    assert target.context_length == 2048


def test_reading_a_prompt_says_nothing_of_what_trees_cost() -> None:
    """Few rows of a prompt compute logits, so reading a prompt must not change the estimated cost of trees."""
    costs = CostModel([1, 64], [1.0, 1.0])
    drafter = draft_model(tiny_model(max_position_embeddings=2048), capacity=2000, costs=costs)
    drafter.propose([DraftRequest(1, np.resize(np.asarray(PROMPT, np.int32), 600), 8, 600)])
    assert drafter.stats()["passes"] == 1
    assert costs.time(64, 1, 128) == costs.time(1, 1, 128) == 1.0


@pytest.mark.parametrize(("nodes", "written"), [(1, 0), (64, 253)])
def test_a_tree_grows_no_further_than_it_can_be_verified(nodes: int, written: int) -> None:
    """Regression: a draft of one node, or near the end of a text, used to take as many passes as a whole tree."""
    drafter = draft_model(bounds=TreeBounds(max_depth=12), capacity=400)
    text = np.resize(np.asarray(PROMPT, np.int32), 20 + written)
    [found] = drafter.propose([DraftRequest(1, text, nodes, 20)])
    assert len(found) > 0
    assert drafter.stats()["passes"] <= 2


def test_a_dear_draft_model_reads_no_prompt() -> None:
    """The draft model's passes take as long as ten plain steps, and answers are short."""
    drafter = draft_model(costs=CostModel([1], [10.0]))
    for number in range(16):
        request = DraftRequest(number, np.asarray(PROMPT, np.int32), 8, budget=DraftBudget(token_seconds=1.0))
        drafted = [len(drafter.propose([request])[0]) > 0 for _ in range(20)]
        assert drafted == [False] * 20
        drafter.release(number)
    assert drafter.stats()["passes"] == 0
    assert drafter.stats()["unread"] == 16


@pytest.mark.parametrize("wrong", [{"width": 0}, {"children": 65}, {"max_depth": 1.5}])
def test_a_bound_out_of_its_range_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        TreeBounds(**wrong)


@pytest.mark.parametrize(("most", "depth"), [(0.5, 1), (2.5, 2), (3.5, 3), (100.0, 4)])
def test_a_draft_takes_no_more_than_it_may(most: float, depth: int) -> None:
    """Each pass takes 1 second, including the first. By the cost of a token alone, all passes would be worthwhile."""
    assert chain_length(4, budget=DraftBudget(token_seconds=1e9, model_seconds=most)) == depth


@pytest.mark.parametrize(("rate", "depth"), [(1.0, 3), (3.0, 2), (30.0, 1), (100.0, 1)])
def test_drafts_are_shorter_where_tokens_come_fast(rate: float, depth: int) -> None:
    """If recent drafts have made decoding fast, an accepted token saves less time, so drafts are shorter."""
    assert chain_length(3, budget=DraftBudget(token_seconds=40.0, speedup=rate)) == depth


def chain_length(most: int, **terms: DraftBudget) -> int:
    """Draft a chain of up to ``most`` tokens with passes of one second; return its length."""
    drafter = draft_model(bounds=TreeBounds(max_depth=most, width=1, children=1), costs=Priced())
    [tree] = drafter.propose([replace(DraftRequest(1, np.asarray(PROMPT, np.int32), 8), **terms)])
    return len(tree)


class Priced(CostModel):
    """Every pass takes one second of simulated time."""

    def __init__(self) -> None:
        super().__init__([1], [1.0])

    def update(self, rows: int, requests: int, context: float, seconds: float) -> None:
        pass
