"""Tests linear layers of neural drafters with int8 weights: their error, and the layers that never use them."""

import copy

import pytest
import torch

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.engine.costs.cost_store import CostKey
from suffolk.serving.decoding.engine.model import int8_linear as layers
from suffolk.serving.decoding.engine.model import skinny_gemm as kernel
from suffolk.serving.decoding.engine.model.int8_linear import (
    Int8Linear,
    compress,
    compressed,
    is_compressed,
    round_weights,
)
from suffolk.serving.decoding.engine.model.skinny_gemm import MOST_ROWS, SkinnyLinear, accelerate, skinny_gemm
from suffolk.serving.decoding.engine.model.target import Target
from tests.support.tiny_models import tiny_model

DTYPES = [dtype for dtype, element in kernel.ELEMENTS.items() if kernel._native.skinny_gemm_supports(element)]


@pytest.fixture
def eager(monkeypatch):
    """Make tiny layers use the kernel for up to 8 rows, independent of timings."""
    monkeypatch.setattr(kernel, "_MIN_WEIGHTS", 1)
    monkeypatch.setattr(layers, "faster_rows", lambda layer: 8)


def some(count: int, size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(count, size, generator=torch.Generator().manual_seed(count * size)).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_weight_is_half_a_scale_off_at_most(dtype):
    weight = some(1100, 70, dtype) * torch.logspace(-2, 3, 1100)[:, None].to(dtype)
    weight[3] = 0
    numbers, scales = round_weights(weight)
    assert (numbers.dtype, scales.dtype) == (torch.int8, torch.float32)
    assert numbers.abs().max() == 127
    error = numbers.double() * scales.double()[:, None] - weight.double()
    assert (error.abs() <= 0.501 * scales.double()[:, None]).all()
    assert not numbers[3].any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("biased", [False, True])
def test_a_layer_is_the_product_with_its_rounded_weights_for_few_rows(eager, dtype, biased):
    layer = torch.nn.Linear(70, 50, bias=biased, dtype=dtype)
    plain, rows = copy.deepcopy(layer), some(9, 70, dtype)
    assert compress(layer) == 1
    numbers, scales = round_weights(plain.weight)
    exact = torch.nn.functional.linear(
        rows.double(), numbers.double() * scales.double()[:, None], plain.bias.double() if biased else None
    )
    with torch.inference_mode():
        found = layer(rows[:8])
        assert torch.allclose(found.double(), exact[:8], rtol=2 * torch.finfo(dtype).eps, atol=1e-4)
        assert not torch.equal(found, plain(rows[:8]))
        assert torch.equal(layer(rows), plain(rows))  # more rows use the original weights
    assert torch.equal(layer(rows[:8]), plain(rows[:8]))  # and so do passes that may need gradients
    assert layer.state_dict().keys() == plain.state_dict().keys()


def test_rows_that_no_kernel_takes_are_torchs_own(eager):
    layer = torch.nn.Linear(70, 50)
    compress(layer)
    layer.double()
    with torch.inference_mode():
        assert layer(some(2, 70).double()).dtype == torch.float64
        assert layer(torch.empty(0, 70).double()).shape == (0, 50)


def test_an_accelerated_layer_goes_on_as_one_for_more_rows(eager):
    layer = SkinnyLinear.take_over(torch.nn.Linear(70, 50), frozenset(range(1, MOST_ROWS + 1)))
    rows = some(9, 70)
    with torch.inference_mode():
        expected = skinny_gemm(rows, layer.weight, layer.bias)
        assert compress(layer) == 1
        assert torch.equal(layer(rows), expected)
        assert not torch.equal(layer(rows[:8]), expected[:8])


def test_a_borrowed_layer_stays_as_it_is(eager):
    """An EAGLE head shares the target's output layer. This layer determines the output, so it must not be rounded."""
    layer = torch.nn.Linear(70, 50, bias=False)
    accelerate(layer)
    kind, rows = type(layer), some(2, 70)
    with torch.inference_mode():
        expected = layer(rows)
        twin = compressed(layer)
        assert type(twin) is Int8Linear
        assert twin.weight is layer.weight
        assert type(layer) is kind
        assert torch.equal(layer(rows), expected)
        assert not torch.equal(twin(rows), expected)


def test_what_is_not_plain_finite_or_faster_is_left_alone(eager, monkeypatch):
    hooked, broken = torch.nn.Linear(70, 50), torch.nn.Linear(70, 50)
    hooked.register_forward_hook(lambda *given: None)
    with torch.no_grad():
        broken.weight[2, 3] = float("nan")
    rows, plain = some(2, 70), copy.deepcopy(broken)
    assert compress(torch.nn.ModuleList([hooked, broken, torch.nn.Linear(70, 50).double()])) == 0
    with torch.inference_mode():
        assert torch.equal(broken(rows), plain(rows)) is torch.equal(plain(rows), plain(rows))
        assert torch.equal(broken(rows)[:, 3:], plain(rows)[:, 3:])
    monkeypatch.setattr(layers, "faster_rows", lambda layer: 0)
    slow = torch.nn.Linear(70, 50)
    assert compress(slow) == 0
    assert compressed(slow) is slow
    assert not isinstance(slow, Int8Linear)  # whose int8 weights would be unused


def test_without_memory_for_it_nothing_is_rounded(eager, monkeypatch, caplog):
    layer = torch.nn.Linear(70, 50)
    monkeypatch.setattr(layers.memory, "available_memory", lambda device: 2 * 70 * 50 - 1)
    assert compress(layer) == 0
    assert type(layer) is torch.nn.Linear
    assert "drafters use their original weights" in caplog.text
    monkeypatch.setattr(layers.memory, "available_memory", lambda device: 2 * 70 * 50)
    assert compress(layer) == 1


@pytest.mark.parametrize(("rounded", "rows"), [({1: 0.5, 2: 0.9, 4: 1.1, 8: 0.5}, 2), ({1: 1.0}, 0), ({}, MOST_ROWS)])
def test_the_measurement_decides(monkeypatch, rounded, rows):
    monkeypatch.setattr(
        layers, "seconds", lambda product, x, *rest: 1.0 if product is not skinny_gemm else rounded.get(len(x), 0.5)
    )
    assert layers.faster_rows(torch.nn.Linear(70, 50)) == rows


def test_costs_of_a_compressed_model_are_others(eager):
    """The same model is faster as a draft model than as a target, so its costs are stored apart."""
    target, draft = Target.wrap(tiny_model("llama").float()), Target.wrap(tiny_model("llama").float())
    assert CostKey.of(target) == CostKey.of(draft)
    assert not is_compressed(draft.model)
    assert compress(draft.model) > 4
    assert is_compressed(draft.model)
    assert CostKey.of(target) != CostKey.of(draft)


@pytest.mark.parametrize(
    ("weight", "scales", "message"),
    [
        (torch.ones(3, 8), torch.ones(3), "weight is torch.float32 .*, not torch.int8"),
        (torch.ones(3, 8, dtype=torch.int8), torch.ones(3).double(), "scales is torch.float64"),
        (torch.ones(3, 8, dtype=torch.int8), torch.ones(4), r"scales \[4\] does not fit"),
        (torch.ones(3, 8, dtype=torch.int8), torch.ones(6)[::2], "has gaps"),
        (torch.ones(3, 8, dtype=torch.int8), None, "weight is torch.int8 .*, not torch.float32"),
    ],
)
def test_operands_that_the_kernel_cannot_take_are_refused(weight, scales, message):
    with pytest.raises(InvalidArgument, match=message):
        skinny_gemm(torch.ones(2, 8), weight, None, scales)
