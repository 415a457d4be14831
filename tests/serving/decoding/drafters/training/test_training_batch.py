"""Tests batches with a share of the drafts, and their counts."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
import torch

from suffolk.serving.decoding.drafters.training.evaluation import Tally, expected_tokens
from suffolk.serving.decoding.drafters.training.head import Batch, HeadLoss, TrainableHead
from suffolk.serving.decoding.drafters.training.heads import head_maker
from suffolk.serving.decoding.engine.model.target import Target
from tests.support.tiny_models import tiny_model


def head_and_batch(kind: str) -> tuple[TrainableHead, Batch]:
    """A new head in training mode, and a batch of random text in which all tokens count."""
    torch.manual_seed(0)
    model = Target.wrap(tiny_model())
    tokens = torch.randint(0, model.vocab_size, (3, 12))
    features = torch.randn(3, 12, 1, 32, dtype=model.dtype)
    return head_maker(kind, {})(model), Batch(tokens, torch.ones_like(tokens, dtype=torch.bool), features)


def test_a_thinned_batch_begins_a_share_of_the_drafts_whose_first_token_counts() -> None:
    counted = torch.arange(1000).expand(8, 1000) % 10 < 5
    batch = Batch(torch.zeros(8, 1000, dtype=torch.int64), counted, torch.zeros(8, 1000, 1, 4))
    assert batch.starts.all()
    torch.manual_seed(0)
    first, second = batch.thin(0.25, 2).starts, batch.thin(0.25, 2).starts
    assert not (first[:, :-2] & ~counted[:, 2:]).any()
    assert not first[:, -2:].any()
    assert 0.22 < float(first.sum() / counted[:, 2:].sum()) < 0.28
    assert not torch.equal(first, second)
    assert torch.equal(batch.thin(1.0, 2).starts[:, :-2], counted[:, 2:])
    assert torch.equal(batch.thin(1.0, 1).starts[:, :-1], counted[:, 1:])


def test_where_nothing_counts_a_batch_is_not_thinned() -> None:
    counted = torch.tensor([[True, True, False, False]])
    batch = Batch(torch.zeros(1, 4, dtype=torch.int64), counted, torch.zeros(1, 4, 1, 4))
    assert batch.thin(0.5, 2).starts.all()


@pytest.mark.parametrize("kind", ["early-exit", "redrafter", "eagle"])
def test_however_small_the_share_one_draft_is_trained(kind: str) -> None:
    """Regression: a batch without selected drafts used to end the run. Its loss was NaN or had no gradient."""
    head, batch = head_and_batch(kind)
    found = head.losses(batch.thin(1e-9, head.ahead))
    assert found.seen[0] == 1
    torch.autograd.backward(found.loss)
    grown = [each.grad for each in head.parameters() if each.grad is not None]
    assert grown
    assert all(bool(each.isfinite().all()) for each in grown)


@pytest.mark.parametrize("kind", ["early-exit", "redrafter", "eagle"])
def test_the_last_token_of_an_answer_is_trained_by_a_share_of_the_drafts_too(kind: str) -> None:
    """Regression: exits used to be trained only where the token after the next one counts.

    So they never learned to end a text.
    """
    head, batch = head_and_batch(kind)
    counted = torch.zeros_like(batch.counted)
    counted[:, -1] = True
    assert head.losses(replace(batch, counted=counted).thin(1.0, head.ahead)).seen[0] == len(counted)


def test_a_tally_weighs_batches_by_what_they_count() -> None:
    tally, part = Tally(), Tally()
    tally.add(HeadLoss(torch.tensor(1.0), torch.tensor([3.0, 1.0]), torch.tensor([4.0, 3.0])))
    part.add(HeadLoss(torch.tensor(3.0), torch.tensor([3.0, 2.0]), torch.tensor([8.0, 3.0])))
    tally.merge(part)
    assert tally.mean_loss == pytest.approx((1 * 4 + 3 * 8) / 12)
    assert tally.acceptance == pytest.approx([0.5, 0.5])
    assert Tally(**json.loads(json.dumps(asdict(tally)))).acceptance == tally.acceptance
    assert expected_tokens([0.5, 0.5]) == pytest.approx(0.75)
    assert Tally().mean_loss == 0.0
    assert Tally().acceptance == []
