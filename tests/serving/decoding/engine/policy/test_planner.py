"""Tests the planner and the budgets: trees are sized by their gain, and drafting stops if it gains nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.draft_budget import DraftCandidate
from suffolk.serving.decoding.engine.policy.constants import HOPE
from suffolk.serving.decoding.engine.policy.planner import Planner

SIZES = (1, 2, 4, 8, 16, 32, 64)
MEASURED = (57.0, 90.0, 91.0, 92.0, 95.0, 151.0, 222.0)
CONTEXT = 300
Scores = npt.NDArray[np.float32]


def costs_of(shape: str) -> CostModel:
    """Costs of three kinds.

    ``steep``: a CPU, with a jump at the second row. ``flat``: a GPU. ``linear``: every row costs the same.
    """
    if shape == "steep":
        return CostModel(SIZES, MEASURED, 2.0, 0.01, 0.0006)
    if shape == "flat":
        return CostModel((*SIZES, 256), (20.0, 20.0, 20.0, 20.1, 20.2, 20.5, 21.0, 30.0), 0.05, 1e-5, 1e-6)
    return CostModel(SIZES, [10.0 * size for size in SIZES])


def settled(costs: CostModel, requests: int = 1) -> CostModel:
    """``costs`` after many passes of each size that took the expected time, so that no size is uncertain."""
    sizes = [size for size in costs.sizes.astype(int).tolist() if size >= requests]
    for size in sorted({requests, *sizes}) * 3000:
        costs.update(size, requests, 0.0, costs.time(size, requests, 0.0))
    return costs


def planner_of(costs: CostModel, requests: int = 1, balance: float = 40.0, drafter: str = "one") -> Planner:
    """A planner with ``requests`` open requests of one drafter, numbered from 0, whose budget holds ``balance`` tokens."""
    planner = Planner(costs)
    for number in range(requests):
        planner.open(number, drafter)
    budget = planner.budgets[drafter]
    budget.add(balance - budget.balance)
    return planner


def candidate(
    number: int, scores: npt.ArrayLike, seconds: float = 0.0, verified: int = 0, prefill: float = 0.0
) -> DraftCandidate:
    scores = np.asarray(scores, np.float32)
    of_models = np.zeros(max(len(scores), verified), np.bool_)
    return DraftCandidate(number, scores, of_models, seconds, prefill_seconds=prefill, verified=verified)


def chosen(planner: Planner, scores: npt.ArrayLike, requests: int = 1) -> int:
    """The number of verified nodes of the first of ``requests`` equal candidates."""
    candidates = [candidate(number, scores) for number in range(requests)]
    planner.size_trees(candidates, requests, requests, 0.0)
    return candidates[0].verified


@pytest.mark.parametrize("seed", range(20))
def test_the_choice_is_the_best_rate(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = np.sort(rng.random(40) * rng.random())[::-1].astype(np.float32)
    planner = planner_of(CostModel(SIZES, MEASURED))
    seconds = planner.costs.times(np.arange(1.0, 42.0), 1, 0.0, -HOPE)
    rates = [(1 + float(scores[:size].sum())) / seconds[size] for size in range(41)]
    best = int(np.argmax(rates))
    assert chosen(planner, scores) == (best if rates[best] > 1.02 * rates[0] else 0)


@pytest.mark.parametrize("seed", range(10))
def test_the_choice_for_several_requests_is_the_best_of_all_choices(seed: int) -> None:
    rng = np.random.default_rng(seed)
    curve = CostModel((1, 2, 4, 8, 16), (rng.random(5).cumsum() + 0.5).tolist())
    candidates = [candidate(number, np.sort(rng.random(4))[::-1]) for number in range(3)]
    planner_of(curve, 3).size_trees(candidates, 3, 3, 0.0)
    rates = {
        sizes: (3 + sum(float(each.scores[:size].sum()) for each, size in zip(candidates, sizes, strict=True)))
        / float(curve.times(np.asarray([3.0 + sum(sizes)]), 3, 0.0, -HOPE)[0])
        for sizes in itertools.product(range(5), repeat=3)
    }
    best = max(rates.values())
    found = tuple(each.verified for each in candidates)
    assert rates[found] == pytest.approx(best) if best > 1.02 * rates[0, 0, 0] else found == (0, 0, 0)


def test_nothing_is_verified_where_nothing_pays() -> None:
    planner = planner_of(CostModel(SIZES, MEASURED), 64)
    assert chosen(planner, []) == 0
    assert chosen(planner, np.full(64, 0.005)) == 0
    assert chosen(planner, np.ones(10)) == 10
    assert chosen(planner, np.full(10, 0.2), requests=64) == 0  # each row costs its full price there


def test_requests_without_a_draft_count_too() -> None:
    """Requests without a draft get a token in any case.

    If they were left out, a pass that costs 20 % more would seem worth half a token.
    """
    planner = planner_of(settled(CostModel([1, 8, 9], [100.0, 100.0, 120.0])))
    draft = candidate(0, [0.5])
    planner.size_trees([draft], 8, 8, 0.0)
    assert draft.verified == 0
    planner.size_trees([draft], 2, 2, 0.0)
    assert draft.verified == 1


def test_beside_a_prompt_a_node_must_repay_its_own_time() -> None:
    """A pass that reads 300 rows of a prompt gives few tokens a second.

    By this rate alone, even nodes of probability 0.1 would seem worthwhile.
    """
    costs = settled(
        CostModel([1, 8, 400], [8.0, 64.0, 400.0]), 8
    )  # a row of eight takes 8, one more than eight takes 0.857
    for chance, expected in ((0.1, 0), (0.15, 16)):
        candidates = [candidate(number, np.full(2, chance)) for number in range(8)]
        planner_of(costs, 8).size_trees(candidates, 8, 308, 0.0)
        assert sum(each.verified for each in candidates) == expected


def test_beside_a_prompt_a_node_has_its_measured_cost() -> None:
    """An uncertain size of pass is taken as cheaper, so that it is tried. Passes that read prompts teach nothing about it.

    So it does not become cheaper for them, neither for the choice nor for the budget.
    """
    planner = planner_of(CostModel([1, 8, 64, 128], [8.0, 64.0, 400.0, 800.0]), 8)
    assert planner.costs.times(np.asarray([128.0]), 8, 0.0, -HOPE)[0] < 700
    candidates = [candidate(number, np.full(2, 0.7)) for number in range(8)]
    planner.size_trees(candidates, 8, 72, 0.0)
    assert sum(each.verified for each in candidates) == 0
    planner.record([candidate(0, np.ones(16), verified=16)], 8, 88, 0.0, None)
    assert planner.budgets["one"].balance == pytest.approx(40.0 - 16 * 6.25 / 8, rel=0.01)


def test_at_least_half_of_the_measured_cost_of_a_row_is_booked() -> None:
    """Passes of two sizes that take equally long, by chance, do not make rows free."""
    costs = CostModel([1, 2], [1.0, 1.2])
    for size in [1, 2] * 500:
        costs.update(size, 1, 0.0, 1.0)
    planner = planner_of(costs, balance=10.0)
    planner.record([candidate(0, np.ones(1), verified=1)], 1, 2, 0.0, 1.0)
    assert planner.budgets["one"].balance == pytest.approx(10.0 - 0.1, abs=0.005)


def test_a_pass_risks_a_share_of_the_budget() -> None:
    planner = planner_of(CostModel([1, 41], [1.0, 3.0]), balance=0.25)  # twenty nodes cost a token
    sizes = []
    for _ in range(4):
        sizes.append(chosen(planner, np.full(40, 0.99)))
        planner.budgets["one"].add(0.5)
    assert sizes == [5, 15, 25, 35]


def test_a_pass_without_drafts_comes_now_and_then() -> None:
    """From time to time a pass has no drafts, so that the cost of plain decoding stays measured."""
    planner = planner_of(costs_of("flat"))
    sizes = []
    for _ in range(201):
        draft = candidate(0, np.ones(4))
        planner.size_trees([draft], 1, 1, CONTEXT)
        sizes.append(draft.verified)
        draft.accepted = draft.verified
        planner.record([draft], 1, 1 + draft.verified, CONTEXT, 20.0)
    assert sizes == [*[4] * 100, 0, *[4] * 100]


def test_a_chain_that_is_in_every_pass_does_not_end_the_trees() -> None:
    """A sampled chain is always verified. While a request has one, no pass is plain, and the other requests still get trees."""
    planner = Planner(CostModel([1, 8], [1.0, 1.0]))
    planner.open(0, "chain")
    planner.open(1, "tree")
    verified = []
    for _ in range(1000):
        candidates = [candidate(0, [], verified=3), candidate(1, np.ones(1))]
        planner.size_trees(candidates, 2, 5, 0.0)
        candidates[1].accepted = candidates[1].verified
        planner.record(candidates, 2, 5 + candidates[1].verified, 0.0, None)
        verified.append(candidates[1].verified)
    assert sum(verified[-400:]) >= 390


class World:
    """Simulated requests of one drafter, on a machine whose passes cost ``costs``, measured with noise.

    ``draft``: cost of a draft call, as a share of a plain pass. ``reading``: the drafter's cost of reading a prompt, in
    the time of tokens.
    """

    def __init__(
        self, shape: str, requests: int, draft: float, seed: int = 0, jitter: float = 0.2, reading: float = 0.0
    ) -> None:
        self.costs = costs_of(shape)
        self.planner = Planner(costs_of(shape))
        self.requests, self.draft, self.jitter, self.reading = requests, draft, jitter, reading
        self.rng = np.random.default_rng(seed)
        self.numbers = itertools.count()
        self.plain = self.costs.time(requests, requests, CONTEXT)
        self.seconds = self.tokens = 0.0

    def run(self, steps: int, scores: Scores, accept: Callable[[], int] = lambda: 0) -> None:
        """Run steps of requests that begin and end together."""
        requests, planner = self.requests, self.planner
        numbers = [next(self.numbers) for _ in range(requests)]
        for number in numbers:
            planner.open(number, "one")
        unread = set(numbers)
        for _ in range(steps):
            asking = [number for number in numbers if planner.may_draft(number)]
            spent = self.draft * self.plain if asking else 0.0
            read = self.reading * self.plain / requests
            candidates = [
                candidate(number, scores, spent / len(asking), prefill=read if number in unread else 0.0)
                for number in asking
            ]
            unread -= set(asking)
            planner.size_trees(candidates, requests, requests, CONTEXT)
            for each in candidates:
                each.accepted = min(accept(), each.verified)
            rows = requests + sum(each.verified for each in candidates)
            seconds = self.costs.time(rows, requests, CONTEXT)
            planner.record(candidates, requests, rows, CONTEXT, seconds * self._noise())
            self.seconds += seconds + spent + sum(each.prefill_seconds for each in candidates)
            self.tokens += requests + sum(each.accepted for each in candidates)
        for number in numbers:
            planner.close(number)

    @property
    def slowdown(self) -> float:
        """Seconds per token, divided by those of plain decoding."""
        return self.seconds / self.tokens * self.requests / self.plain

    def _noise(self) -> float:
        outlier = self.rng.uniform(5, 30) if self.jitter and self.rng.random() < 0.02 else 1.0
        return float(outlier * self.rng.uniform(1 - self.jitter, 1 + self.jitter))


@pytest.mark.parametrize("shape", ["steep", "flat", "linear"])
@pytest.mark.parametrize("requests", [1, 4, 16])
@pytest.mark.parametrize(("draft", "sure"), [(0.001, 1.0), (0.05, 0.001), (0.05, 1.0), (0.5, 1.0)])
@pytest.mark.parametrize("length", [20, 2000])
def test_useless_drafts_cost_less_than_two_percent(
    shape: str, requests: int, draft: float, sure: float, length: int
) -> None:
    """This is tested for any confidence and duration of the drafter, for any batch size, and for short and long requests."""
    world = World(shape, requests, draft)
    length = max(20, length // requests)
    while world.tokens < 2000 + 100 * requests:
        world.run(length, np.full(16, sure, np.float32))
    assert world.slowdown < 1.02


@pytest.mark.parametrize(("requests", "reading"), [(1, 20.0), (4, 20.0), (16, 5.0), (16, 20.0)])
def test_reading_prompts_for_useless_drafts_costs_less_than_two_percent(requests: int, reading: float) -> None:
    """The cost of sixteen prompts in one batch is charged in full, over later steps."""
    world = World("steep", requests, 0.01, reading=reading)
    for _ in range(80):
        world.run(100, np.full(16, 0.5, np.float32))
    assert world.slowdown < 1.02


@pytest.mark.parametrize("shape", ["steep", "flat"])
@pytest.mark.parametrize("requests", [1, 4, 16])
@pytest.mark.parametrize("jitter", [0.0, 0.2])
def test_useful_drafts_gain_what_the_best_fixed_size_would(shape: str, requests: int, jitter: float) -> None:
    """Of 8 nodes, 2 are accepted on average, and a draft takes a tenth of a plain pass.

    The requests of the first few seconds do not count.
    """
    world = World(shape, requests, 0.1, jitter=jitter)
    scores = (0.7 ** np.arange(1, 9)).astype(np.float32)

    def accept() -> int:
        return int((world.rng.random() < scores).sum())

    def rate(size: int) -> float:
        spent = world.costs.time(requests * (1 + size), requests, CONTEXT) + world.draft * world.plain
        return float(requests * (1 + scores[:size].sum()) / spent)

    world.run(60, scores, accept)
    world.seconds = world.tokens = 0.0
    for _ in range(1600 // requests // 100 + 1):
        world.run(100, scores, accept)
    share = 0.9 if jitter else 0.95  # noise costs trials of other sizes
    assert world.tokens / world.seconds > share * max(rate(size) for size in range(1, 9))


def test_a_drafter_that_becomes_useful_is_taken_up_again() -> None:
    world = World("steep", 1, 0.02)
    world.run(500, np.ones(8, np.float32))
    world.seconds = world.tokens = 0.0
    world.run(500, np.ones(8, np.float32), lambda: 6)
    assert world.slowdown < 0.5


def test_a_paused_drafter_needs_what_a_small_tree_costs_now() -> None:
    planner = planner_of(costs_of("linear"))
    chosen(planner, np.full(64, 0.01))  # a tree of eight nodes costs eight tokens
    budget = planner.budgets["one"]
    budget.add(-41.0)
    for rows in (1, 9) * 200:  # the machine was busy: other programs made rows look dear
        planner.record([], 1, rows, CONTEXT, 10.0 + 0.1 * rows)
    budget.add(1.6)
    assert planner.may_draft(0)


def test_the_losses_of_one_drafter_do_not_pause_another() -> None:
    world = World("steep", 1, 0.5)
    world.run(100, np.ones(8, np.float32))
    world.planner.open(-1, "one")
    world.planner.open(-2, "another")
    assert not world.planner.may_draft(-1)
    assert world.planner.may_draft(-2)


def test_drafts_are_charged_in_passes_that_read_prompts() -> None:
    """If requests arrive steadily, every pass reads prompts, so drafts must be charged in these passes."""
    planner = Planner(costs_of("steep"))
    planner.open(0, "one")
    asked = 0
    for _ in range(1000):
        if planner.may_draft(0):
            asked += 1
            planner.record([candidate(0, [], 50.0)], 1, 500, CONTEXT, None)
    assert asked < 30


def test_noise_of_the_machine_is_no_loss_of_drafts() -> None:
    """Drafting does not end if the first two passes take three times their usual time."""
    planner = Planner(CostModel(SIZES, [60.0, 61.0, 62.0, 64.0, 70.0, 80.0, 100.0]))
    planner.open(0, "one")
    for _ in range(2):
        draft = candidate(0, np.full(16, 0.3))
        planner.size_trees([draft], 1, 1, CONTEXT)
        assert draft.verified
        planner.record([draft], 1, 1 + draft.verified, CONTEXT, 190.0)
    assert planner.may_draft(0)


def test_scores_above_their_acceptance_are_scaled_down_and_come_back() -> None:
    planner = planner_of(costs_of("steep"))
    scores = np.full(16, 0.08, np.float32)
    assert chosen(planner, scores) > 0

    def learn(verified: int) -> None:
        planner.may_draft(0)
        draft = candidate(0, scores, verified=verified)
        planner.record([draft], 1, 1 + verified, CONTEXT, planner.costs.time(1 + verified, 1, CONTEXT))

    for _ in range(150):
        learn(16)
    assert chosen(planner, scores) == 0
    for _ in range(4000):
        learn(0)
    planner.close(0)
    planner.open(0, "one")
    assert chosen(planner, scores) > 0


def test_a_request_unlike_its_sources_verifies_less_although_others_gain() -> None:
    planner = planner_of(CostModel([1, 2, 16], [1.0, 1.1, 2.5]), 2)
    sizes: dict[int, list[int]] = {0: [], 1: []}
    for _ in range(20):
        for number in sizes:
            draft = candidate(number, np.full(15, 0.3))
            planner.size_trees([draft], 1, 1, 0.0)
            draft.accepted = 0 if number else round(0.3 * draft.verified)
            sizes[number].append(draft.verified)
            planner.record([draft], 1, 1 + draft.verified, 0.0, None)
    assert sum(sizes[1][4:]) < 0.7 * sum(sizes[0][4:])


def test_the_budget_of_a_draft_follows_costs_and_gains() -> None:
    planner = planner_of(CostModel([1, 9], [2.0, 4.0]), balance=0.0)
    first = planner.draft_budget(0, 1, 0.0)
    assert (first.token_seconds, first.row_seconds, first.speedup) == (2.0, 0.25, 1.0)
    assert first.least_score == 0.125
    planner.budgets["one"].add(8.0)
    assert planner.draft_budget(0, 1, 0.0).model_seconds == pytest.approx(first.model_seconds + 2 * 0.25 * 8)
    for _ in range(40):
        draft = candidate(0, np.ones(3), verified=3)
        draft.accepted = 3
        planner.record([draft], 1, 4, 0.0, None)
    fast = planner.draft_budget(0, 1, 0.0)
    assert fast.speedup > 2
    assert fast.value_seconds < first.value_seconds
