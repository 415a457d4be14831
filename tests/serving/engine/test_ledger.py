"""A drafter's account, and the one of networks that it may leave out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.drafters.hybrid.accepted_length import owed
from suffolk.serving.drafters.registry import network_bits, source_bits
from suffolk.serving.engine.policy.account import Purse
from suffolk.serving.engine.policy.cost_model import CostModel
from suffolk.serving.engine.policy.ledger import Ledger
from suffolk.serving.engine.policy.planner import DraftCandidate, Planner
from tests.support.drafters import tree

COSTS = CostModel([1, 2], [1.0, 1.0])


def step(planner: Planner, ledger: Ledger, network_seconds: float, accepted: int) -> None:
    """One step of one request, whose tokens cost a second: text brings ``accepted`` of two nodes, networks nothing."""
    networks = network_seconds if ledger.with_networks else 0.0
    offer = DraftCandidate(
        "hybrid", ledger, np.array([0.9, 0.5], np.float32), 0.01, network_seconds=networks,
        of_networks=np.array([False, True]),
    )  # fmt: skip
    planner.choose([offer], 1, 1, 0.0)
    offer.accepted = min(accepted, offer.verified)
    planner.record([offer], 1, 1 + offer.verified, 0.0, 1.0)


def test_what_networks_lose_does_not_end_the_drafts_of_others() -> None:
    """Two heads read a first prompt in twelve tokens' time, and retrieval drafted nothing in the next four answers."""
    planner = Planner(COSTS)
    with_networks = 0
    for _ in range(5):
        ledger = planner.open("hybrid", networks=True)
        for number in range(40):
            assert ledger.should_propose()
            with_networks += ledger.with_networks
            step(planner, ledger, 2.0, accepted=number % 5 == 0)
        ledger.close()
    assert 0 < with_networks < 20


def test_what_others_lose_does_not_end_the_drafts_of_networks() -> None:
    planner = Planner(COSTS)
    ledger = planner.open("hybrid", networks=True)
    for _ in range(100):
        assert ledger.should_propose()
        assert ledger.with_networks
        ledger.book(-0.1, 1.0)


def test_both_lose_what_one_account_would_and_a_token_each_at_first() -> None:
    """In the long run a hundredth of a token a step."""
    planner = Planner(COSTS)
    lost = 0.0
    for _ in range(100):
        ledger = planner.open("hybrid", networks=True)
        for _ in range(50):
            if ledger.should_propose():
                networks = 0.4 if ledger.with_networks else 0.0
                ledger.book(-0.1, -networks)
                lost += 0.1 + networks
        ledger.close()
    assert lost < 2 + 0.4 + 0.01 * 5000


def test_networks_are_tried_again_from_what_others_earn() -> None:
    planner = Planner(COSTS)
    tries = []
    for earned in (0.0, 0.5):
        ledger = planner.open(f"hybrid {earned}", networks=True)
        tries.append(0)
        for _ in range(400):
            if ledger.should_propose():
                tries[-1] += ledger.with_networks
                ledger.book(earned, -1.0)
    assert tries[1] > 2 * tries[0] > 0


def test_one_draft_of_a_network_that_brings_nothing_does_not_end_its_use_in_a_text() -> None:
    """A draft model that had earned well paused for 22 steps of an answer of 64 tokens."""
    planner = Planner(COSTS)
    for _ in range(3):
        ledger = planner.open("hybrid", networks=True)
        for _ in range(30):
            assert ledger.should_propose()
            ledger.book(0.5, 3.0)
        ledger.close()
    ledger = planner.open("hybrid", networks=True)
    with_networks = 0
    for _ in range(60):
        assert ledger.should_propose()
        with_networks += ledger.with_networks
        ledger.book(0.5, -3.0 if ledger.with_networks else 0.0)
    assert 2 < with_networks < 10  # but one that never pays here does


def test_networks_of_a_drafter_that_has_earned_much_may_be_tried_a_little_longer() -> None:
    """A draft model whose first two drafts, of three tokens' time each, brought nothing new was left out of eight answers."""
    lost = []
    for earned in (0.0, 1.0):
        planner = Planner(COSTS)
        ledger = planner.open("hybrid", networks=True)
        for _ in range(100):
            ledger.should_propose()
            ledger.book(earned)
        ledger.close()
        ledger = planner.open("hybrid", networks=True)
        lost.append(0.0)
        for _ in range(60):
            if ledger.should_propose() and ledger.with_networks:
                ledger.book(0.0, -3.0)
                lost[-1] += 3.0
    assert lost[0] <= 6.0 < lost[1] <= 24.0


@pytest.mark.parametrize("requests", [1, 4, 16])
def test_useless_networks_cost_a_batch_no_more_than_a_request(requests: int) -> None:
    """The time of a draft for one of sixteen requests was once shared by all, fifteen of whom had no account to book it to."""
    planner = Planner(CostModel([1, 16], [1.0, 1.0]))
    ledgers = [planner.open("hybrid", networks=True) for _ in range(requests)]
    ledgers[0].book(0.0, 9.0)  # which has savings, and drafts on when others must not
    steps, lost = 1500, 0.0
    for _ in range(steps):
        asking = [ledger for ledger in ledgers if ledger.should_propose()]
        passing = [ledger for ledger in asking if ledger.with_networks]
        seconds = 0.5 if passing else 0.0  # of a pass, for any number of requests
        lost += seconds * requests
        offers = [
            DraftCandidate(
                "hybrid",
                each,
                np.empty(0, np.float32),
                network_seconds=each.with_networks * seconds / max(1, len(passing)),
            )
            for each in asking
        ]
        planner.record(offers, requests, requests, 0.0, 1.0)
    assert lost < 0.01 * steps * requests


def test_a_drafter_without_networks_has_one_account() -> None:
    purse = Purse()
    ledger = Ledger(purse.open())
    assert ledger.should_propose()
    assert ledger.may_pass
    assert not ledger.with_networks
    ledger.book(-3.0, 1.0)
    assert purse.balance == pytest.approx(1 + 0.01 - 2)
    assert not ledger.should_propose()


def test_the_rate_is_that_of_late_and_never_below_that_of_plain_decoding() -> None:
    ledger = Ledger(Purse().open())
    assert ledger.rate == 1
    for _ in range(60):
        ledger.pace(6, 2.0)
    assert ledger.rate == pytest.approx(3.0, abs=0.01)
    for _ in range(60):
        ledger.pace(1, 1.2)
    assert ledger.rate == 1


def test_tokens_are_owed_to_networks_from_the_first_that_is_not_there_without_them() -> None:
    """Where retrieval had named a token too, among many that nobody would have verified, the network had no thanks for it."""
    both = source_bits("datastore+eagle")
    found = replace(
        tree([1, 2, 3, 4, 2], [-1, 0, 1, -1, 3]),
        sources=np.array([both, both, source_bits("prompt-lookup"), source_bits("datastore"), both], np.uint32),
    )
    without = tree([4, 2, 1], [-1, 0, -1])
    offer = DraftCandidate(
        "hybrid", Ledger(Purse().open()), found.scores, of_networks=owed(found, without, network_bits())
    )
    assert owed(found, found, network_bits()).tolist() == [False] * 5
    assert owed(found, DraftTree.empty(), network_bits()).tolist() == [True, True, True, False, True]
    for path, accepted, to_networks in (
        ([0, 1, 2], 3, 2),
        ([0, 1, 2], 1, 0),
        ([3, 4], 2, 0),
        ([], 0, 0),
        ([0, 1], 2, 1),
    ):
        offer.accept(np.array(path, np.int64), accepted)
        assert (offer.accepted, offer.owed) == (accepted, to_networks)
