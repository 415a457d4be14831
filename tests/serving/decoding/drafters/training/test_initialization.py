"""Tests the least-squares initialization of heads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from suffolk.serving.decoding.drafters.neural.redrafter.config import LossConfig
from suffolk.serving.decoding.drafters.training.head import Batch, LeastSquares
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support import eagle_heads, heads
from tests.support.eagle_heads import own_texts, tiny_target
from tests.support.tiny_models import tiny_model


def test_the_least_squares_of_parts_are_those_of_all_rows() -> None:
    generator = torch.Generator().manual_seed(0)
    x, noise = (torch.randn(200, size, generator=generator, dtype=torch.float64) for size in (6, 3))
    x[:, 5] = 0  # an input that is always 0
    y = x @ torch.arange(18, dtype=torch.float64).reshape(6, 3) + 0.1 * noise
    squares = LeastSquares()
    assert not squares.enough
    squares.add(x[:90], y[:90])
    assert not squares.enough
    squares.add(x[90:].float(), y[90:].float())
    assert squares.enough
    expected = torch.linalg.lstsq(x[:, :5], y).solution.T
    found = squares.solve()
    assert found.shape == (3, 6)
    assert (found[:, :5] - expected).abs().max() < 1e-2
    assert (found[:, 5] == 0).all()


def test_a_started_eagle_head_is_the_best_linear_map_of_a_pair() -> None:
    head = eagle_heads.random_head().train()
    batch = eagle_heads.batch_of(own_texts()[:60], head.layers)
    head.initialize(iter([batch]))
    target = tiny_target()
    embedded = target.model.get_input_embeddings()(batch.tokens[:, 1:-1])
    pairs = torch.cat([embedded, batch.features[:, :-2, 0]], -1).flatten(0, 1)
    wanted = batch.features[:, 1:-1, 0].flatten(0, 1)
    best = pairs @ torch.linalg.lstsq(pairs, wanted).solution
    with torch.no_grad():
        positions = torch.arange(batch.tokens.shape[1] - 1)
        found = head.step(batch.tokens[:, 1:], batch.features[:, :-1, 0], positions, _alone)[:, :-1].flatten(0, 1)
    assert (found - wanted).square().mean() < 1.01 * (best - wanted).square().mean()
    torch.autograd.backward(head.losses(batch).loss)
    grown = (head.fc.weight, head.layer.self_attn.o_proj.weight, head.layer.mlp.down_proj.weight)
    assert all(weight.grad is not None and float(weight.grad.abs().max()) > 0 for weight in grown)


@pytest.fixture(scope="module")
def target() -> Target:
    return Target.wrap(tiny_model())


@pytest.fixture(scope="module")
def batch(target: Target) -> Batch:
    return heads.texts_of(target, 40, SamplingSettings(30, 1.0, ignore_eos=True, seed=3))


@pytest.mark.parametrize("output", ["target", "own"])
@pytest.mark.parametrize("recurrent", [True, False])
def test_a_started_recurrent_head_knows_more_than_a_random_one(
    target: Target, batch: Batch, output: str, recurrent: bool
) -> None:
    losses, taken = [], []
    for started in (False, True):
        head = heads.random_head(target, loss=LossConfig(3), output=output, recurrent=recurrent)
        if started:
            head.initialize(_counting(batch, taken))
        losses.append(float(head.losses(batch).loss.detach()))
    assert losses[1] < losses[0]
    assert len(taken) == 1  # the first batch has enough rows


def test_blocks_of_another_width_stay_as_they_are(target: Target) -> None:
    head = heads.random_head(target, exit_dim=48, output="target")
    before = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    head.initialize(iter(()))
    assert all(torch.equal(tensor, before[name]) for name, tensor in head.state_dict().items())


def _alone(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return value.repeat_interleave(query.shape[1] // value.shape[1], 1)


def _counting(batch: Batch, taken: list[Batch]) -> Iterator[Batch]:
    for each in (batch, batch):
        taken.append(each)
        yield each
