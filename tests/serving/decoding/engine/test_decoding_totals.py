"""Tests the counters of a step loop after every step."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

import numpy as np

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.engine.costs.draft_budget import DraftCandidate
from suffolk.serving.decoding.engine.loop.draft_stats import STAGES
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.step_loop import StepLoop
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.drafters import Booked, MadeUpDrafter, eager_decoder, eager_loop, knowing, lying
from tests.support.tiny_models import VOCAB, tiny_model

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


def assert_totals(loop: StepLoop, requests: list[Request]) -> None:
    """Assert that totals are sums over all requests, and that tokens and passes differ by the gain from drafts."""
    totals = loop.totals()
    for name in ("tokens", "steps", "draft_calls", "nodes_proposed", "nodes_verified", "accepted", "earned"):
        assert totals[name] == sum(getattr(request.stats, name) for request in requests), name
    rows: Counter[tuple[str, int, int]] = Counter()
    for row in (row for request in requests for row in request.stats.drafted.rows()):
        rows.update({(stage, row["source"], row["depth"]): row[stage] for stage in STAGES})
    assert rows == {(stage, row["source"], row["depth"]): row[stage] for row in totals["drafted"] for stage in STAGES}
    assert totals["draft_failures"] == sum((request.stats.draft_failures for request in requests), Counter())
    begun = sum(request.stats.tokens > 0 for request in requests)
    assert totals["tokens"] == begun + totals["steps"] + totals["earned"]


def test_totals_grow_step_by_step() -> None:
    """Regression: totals used to grow only at the end of a request, so a long request was invisible while it ran."""
    rng = np.random.default_rng(0)
    output = eager_decoder(Target.wrap(tiny_model()), None).generate(PROMPT, SamplingSettings(60))
    list(output)
    model = tiny_model()
    model.generation_config.eos_token_id = output.tokens[40]
    target = Target.wrap(model)
    drafters = {"knows": knowing(len(PROMPT), output.tokens, 8, rng, VOCAB), "lies": lying(rng, VOCAB)}
    loop = eager_loop(target, drafters, slots=3)
    requests = [
        Request(1, target, PROMPT, SamplingSettings(60), "knows"),  # ends with a token that was drafted
        Request(2, target, PROMPT[1:], SamplingSettings(30, 1.0, ignore_eos=True), "lies"),
        Request(3, target, PROMPT[2:], SamplingSettings(200, 1.0, ignore_eos=True)),
    ]
    for request in requests:
        loop.join(request)
    tokens = [0]
    while len(loop.running) > 1:
        loop.step()
        assert_totals(loop, requests)
        tokens.append(loop.totals()["tokens"])
    assert all(before < after for before, after in zip(tokens, tokens[1:], strict=False))
    knew = requests[0].stats
    assert (knew.finish, knew.earned) == ("eos", knew.accepted - 1)
    assert loop.totals()["draft_failures"]
    loop.leave(requests[2])
    assert_totals(loop, requests)
    assert loop.totals()["finished"] == {"eos": 1, "length": 1, "cancelled": 1}
    assert loop.totals()["prompt_tokens"] == sum(request.stats.prompt_tokens for request in requests)


def test_waiting_for_drafts_is_told_from_choosing_among_them() -> None:
    target = Target.wrap(tiny_model())
    waited = []

    def propose_late(_: object) -> DraftTree:
        begin = time.perf_counter()
        time.sleep(0.02)
        waited.append(time.perf_counter() - begin)
        return DraftTree.empty()

    run = eager_decoder(target, MadeUpDrafter(propose_late)).generate(PROMPT, SamplingSettings(5))
    list(run)
    assert len(waited) == 3  # for four tokens after the first; after the last but one there is no room
    assert run.stats.seconds["wait"] >= sum(waited)
    assert set(run.stats.seconds) == {"prefill", "draft", "wait", "forward", "verify", "compact", "other"}


def test_what_sizing_takes_is_a_part_of_what_drafts_cost() -> None:
    """Regression: the time to choose and arrange drafts used not to be charged to drafts.

    For many requests it is a millisecond per step.
    """

    class Slow(Booked):
        def size_trees(self, candidates: Sequence[DraftCandidate], requests: int, rows: int, context: float) -> None:
            time.sleep(0.01)

    target, planner = Target.wrap(tiny_model()), Slow()
    loop = StepLoop(target, {"none": MadeUpDrafter(lambda request: DraftTree.empty())}, planner, 2, 700)
    for number in (1, 2):
        loop.join(Request(number, target, PROMPT, SamplingSettings(6, ignore_eos=True), "none"))
    while loop.running:
        loop.step()
    assert len(planner.candidates) == 8
    assert all(offer.seconds >= 0.005 for offer in planner.candidates)
