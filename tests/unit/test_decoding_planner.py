"""The cost curve and the planner: sizes that pay, and drafting that stops when it does not."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from datastore.errors import InvalidArgument
from serving.decoding.account import Account
from serving.decoding.cost_curve import SIZES, CostCurve, measure
from serving.decoding.planner import Offer, Planner
from serving.decoding.target import Target
from tests.tiny_models import tiny_model

MEASURED = (57.0, 90.0, 91.0, 92.0, 95.0, 151.0, 222.0)


def test_times_between_the_points_are_linear_and_go_on_behind_the_last() -> None:
    curve = CostCurve([1, 2, 4], [1.0, 1.5, 2.5])
    assert [curve.time(size) for size in (1, 2, 3, 4, 6)] == [1.0, 1.5, 2.0, 2.5, 3.5]


def test_a_larger_step_is_never_cheaper_and_n_tokens_never_dearer_than_n_steps() -> None:
    curve = CostCurve([1, 2, 4, 8], [1.0, 50.0, 2.0, 100.0])
    assert curve.seconds.tolist() == [1.0, 2.0, 2.0, 8.0]


def test_updates_move_the_visited_point_most() -> None:
    curve = CostCurve([1, 2, 4, 8], [1.0, 1.2, 1.4, 1.6])
    for _ in range(40):
        curve.update(4, 2.0)
    assert curve.time(4) == pytest.approx(2.0, rel=0.05)
    assert curve.time(8) >= curve.time(4)
    assert curve.time(1) < 1.6


def test_one_outlier_moves_little() -> None:
    curve = CostCurve([1, 8], [1.0, 1.5])
    curve.update(8, 1000.0)
    assert curve.time(8) < 2.0


@pytest.mark.parametrize(
    ("sizes", "seconds"), [([], []), ([2], [1.0]), ([1, 1], [1.0, 1.0]), ([1, 2], [1.0]), ([1], [0.0])]
)
def test_points_that_are_no_curve_are_refused(sizes: list[int], seconds: list[float]) -> None:
    with pytest.raises(InvalidArgument, match="cost curve"):
        CostCurve(sizes, seconds)


def test_a_target_is_measured_at_every_size_its_context_allows() -> None:
    curve = measure(Target.wrap(tiny_model(max_position_embeddings=48)), repeats=1)
    assert curve.sizes.tolist() == [1, 2, 4, 8, 16, 32]
    assert (curve.seconds > 0).all()


def chosen(planner: Planner, scores: np.ndarray, requests: int = 1) -> int:
    """How many nodes of the first of ``requests`` equal offers are verified."""
    offers = [Offer("one", Account(), scores) for _ in range(requests)]
    planner.choose(offers, requests)
    return offers[0].verified


@pytest.mark.parametrize("seed", range(20))
def test_the_choice_is_the_best_rate(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = np.sort(rng.random(40) * rng.random())[::-1].astype(np.float32)
    planner = Planner(CostCurve(SIZES, MEASURED))
    rates = [(1 + float(scores[:size].sum())) / planner.curve.time(1 + size) for size in range(41)]
    best = int(np.argmax(rates))
    assert chosen(planner, scores) == (best if rates[best] > 1.02 * rates[0] else 0)


@pytest.mark.parametrize("seed", range(10))
def test_the_choice_for_several_requests_is_the_best_of_all_choices(seed: int) -> None:
    rng = np.random.default_rng(seed)
    curve = CostCurve((1, 2, 4, 8, 16), rng.random(5).cumsum() + 0.5)
    offers = [Offer("one", Account(), np.sort(rng.random(4)).astype(np.float32)[::-1]) for _ in range(3)]
    Planner(curve).choose(offers, 3)
    rates = {
        sizes: (3 + sum(float(offer.scores[:size].sum()) for offer, size in zip(offers, sizes, strict=True)))
        / curve.time(3 + sum(sizes))
        for sizes in itertools.product(range(5), repeat=3)
    }
    best = max(rates.values())
    found = tuple(offer.verified for offer in offers)
    assert rates[found] == pytest.approx(best) if best > 1.02 * rates[0, 0, 0] else found == (0, 0, 0)
    assert [offer.promised for offer in offers] == [
        pytest.approx(float(offer.scores[:size].sum())) for offer, size in zip(offers, found, strict=True)
    ]


def test_nothing_is_verified_where_nothing_pays() -> None:
    planner = Planner(CostCurve(SIZES, MEASURED))
    assert chosen(planner, np.empty(0, np.float32)) == 0
    assert chosen(planner, np.full(64, 0.005, np.float32)) == 0
    assert chosen(planner, np.ones(10, np.float32)) == 10
    assert chosen(planner, np.full(10, 0.2, np.float32), requests=64) == 0  # each row costs its full price there


def spent(
    planner: Planner, steps: int, draft: float, accepted: int, scores: np.ndarray, requests: int = 1
) -> tuple[float, int]:
    """Simulated seconds and tokens of ``requests`` together for ``steps`` steps with a drafter of that cost and worth."""
    total, tokens = 0.0, 0
    accounts = [planner.open("one") for _ in range(requests)]
    for _ in range(steps):
        offers = [Offer("one", account, scores, draft) for account in accounts if account.should_propose()]
        planner.choose(offers, requests)
        for offer in offers:
            offer.accepted = min(accepted, offer.verified)
        rows = requests + sum(offer.verified for offer in offers)
        forward = CostCurve(SIZES, MEASURED).time(rows)
        planner.record(offers, requests, rows, forward)
        total += forward + draft * len(offers)
        tokens += requests + sum(offer.accepted for offer in offers)
    for account in accounts:
        planner.close("one", account)
    return total, tokens


@pytest.mark.parametrize("requests", [1, 3, 8])
@pytest.mark.parametrize("draft", [0.1, 20.0])
@pytest.mark.parametrize("scores", [np.full(16, 0.001, np.float32), np.ones(16, np.float32)])
def test_a_useless_drafter_costs_less_than_two_percent(draft: float, scores: np.ndarray, requests: int) -> None:
    """However sure of itself it is, however long it takes, and at any batch size."""
    planner = Planner(CostCurve(SIZES, MEASURED))
    seconds, tokens = spent(planner, 3000, draft, 0, scores, requests)
    assert seconds / tokens < CostCurve(SIZES, MEASURED).time(requests) / requests * 1.02


def test_a_drafter_that_becomes_useful_is_taken_up_again() -> None:
    planner = Planner(CostCurve(SIZES, MEASURED))
    spent(planner, 500, 1.0, 0, np.ones(8, np.float32))
    seconds, tokens = spent(planner, 500, 1.0, 6, np.ones(8, np.float32))
    assert tokens / seconds > 2 / 57.0


def test_a_new_request_takes_over_its_drafters_debt() -> None:
    planner = Planner(CostCurve(SIZES, MEASURED))
    spent(planner, 500, 1.0, 0, np.ones(8, np.float32))
    indebted, next_one = planner.open("one"), planner.open("one")
    waited = next(step for step in range(1000) if indebted.should_propose())
    assert 1 <= waited <= 200
    assert next_one.should_propose()


def test_debts_are_one_drafters_and_not_anothers() -> None:
    planner = Planner(CostCurve(SIZES, MEASURED))
    spent(planner, 500, 1.0, 0, np.ones(8, np.float32))
    assert planner.open("another").should_propose()


def test_useless_drafts_cost_short_requests_little_too() -> None:
    """Each new request used to win the drafter a pardon and a plain step of credit, 5 to 8 % of an answer of 96 tokens."""
    planner = Planner(CostCurve(SIZES, MEASURED))
    seconds, tokens = 0.0, 0
    for _ in range(40):
        more = spent(planner, 20, 1.0, 0, np.full(16, 0.2, np.float32))
        seconds, tokens = seconds + more[0], tokens + more[1]
    assert seconds / tokens < 57.0 * 1.02


def test_scores_that_promise_too_much_are_believed_less() -> None:
    planner = Planner(CostCurve(SIZES, MEASURED))
    scores = np.full(16, 0.07, np.float32)
    assert chosen(planner, scores) > 0
    spent(planner, 70, 0.0, 0, scores)
    assert chosen(planner, scores) == 0
    spent(planner, 2000, 0.0, 0, np.empty(0, np.float32))
    assert chosen(planner, scores) > 0
