"""Tests the linear kernel as Python calls it, and the layers of a model that use it."""

import copy
import os
import pickle

import pytest
import torch
import torch.nn.functional as F

from suffolk.datastore import _native
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.engine.model import skinny_gemm as layers
from suffolk.serving.decoding.engine.model.skinny_gemm import MOST_ROWS, SkinnyLinear, accelerate, skinny_gemm
from suffolk.serving.decoding.engine.model.target import Target
from tests.support.tiny_models import tiny_model

DTYPES = [dtype for dtype, element in layers.ELEMENTS.items() if _native.skinny_gemm_supports(element)]


def operands(m: int, k: int, n: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    made = torch.Generator().manual_seed(m * 1000 + k + n)
    return tuple(torch.randn(shape, generator=made).to(dtype) for shape in ((m, k), (n, k), (n,)))


def assert_right(found: torch.Tensor, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None) -> None:
    x, w, b = x.double(), w.double(), None if b is None else b.double()
    expected, size = F.linear(x, w, b), F.linear(x.abs(), w.abs(), None if b is None else b.abs())
    bound = torch.finfo(found.dtype).eps / 2 * expected.abs() + 2.0**-24 * (w.shape[1] / 8 + 8) * size + 1e-7
    assert ((found.double() - expected).abs() <= bound).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("k", "n"), [(576, 192), (64, 48), (13, 1), (100, 37), (1, 5)])
def test_sums_are_within_their_roundings_and_a_row_has_the_same_bits_anywhere(dtype, k, n):
    x, w, b = operands(65, k, n, dtype)
    whole = skinny_gemm(x, w, b)
    assert_right(whole, x, w, b)
    assert_right(skinny_gemm(x, w), x, w, None)
    for m in range(1, 66):
        assert torch.equal(skinny_gemm(x[:m], w, b), whole[:m])
        assert torch.equal(skinny_gemm(x[65 - m :], w, b), whole[65 - m :])
    order = torch.randperm(65, generator=torch.Generator().manual_seed(3))
    assert torch.equal(skinny_gemm(x[order], w, b), whole[order])


def test_the_number_of_threads_changes_no_bit():
    x, w, b = operands(9, 600, 500, torch.float32)
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(skinny_gemm(x, w, b))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_may_lie_in_any_way(dtype):
    x, w, b = operands(12, 40, 30, dtype)
    plain = skinny_gemm(x, w, b)
    wide = torch.zeros(12, 99, dtype=dtype)
    wide[:, 7:47] = x
    assert torch.equal(skinny_gemm(wide[:, 7:47], w, b), plain)
    assert torch.equal(skinny_gemm(x.T.contiguous().T, w, b), plain)
    assert torch.equal(skinny_gemm(x[::3], w, b), plain[::3])
    assert torch.equal(skinny_gemm(x[:1].expand(5, -1), w, b), plain[:1].expand(5, -1))
    assert torch.equal(skinny_gemm(x.view(3, 1, 4, 40), w, b), plain.view(3, 1, 4, 30))
    assert torch.equal(skinny_gemm(x[0], w, b), plain[0])


def test_nothing_gives_nothing():
    assert skinny_gemm(torch.empty(0, 8), torch.ones(3, 8)).shape == (0, 3)
    assert skinny_gemm(torch.empty(2, 0, 8), torch.ones(3, 8)).shape == (2, 0, 3)
    assert skinny_gemm(torch.ones(2, 8), torch.empty(0, 8)).shape == (2, 0)
    assert torch.equal(
        skinny_gemm(torch.empty(2, 0), torch.empty(3, 0), torch.arange(3.0)), torch.arange(3.0).expand(2, 3)
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_not_finite_stays_so_in_its_row_alone(dtype):
    x, w, b = operands(4, 21, 14, dtype)
    plain = skinny_gemm(x, w, b)
    x[1, 20], x[2, 3] = float("inf"), float("nan")
    found = skinny_gemm(x, w, b)
    assert found[1].isinf().all()
    assert found[2].isnan().all()
    assert torch.equal(found[[0, 3]], plain[[0, 3]])


@pytest.mark.parametrize(
    ("x", "w", "b", "message"),
    [
        (torch.ones(2, 8).double(), torch.ones(3, 8).double(), None, "dtype torch.float64 is not supported"),
        (torch.ones(2, 8), torch.ones(3, 8).bfloat16(), None, "weight is torch.bfloat16"),
        (torch.ones(2, 8), torch.ones(3, 9), None, "rows .2, 8. do not fit weights .3, 9."),
        (torch.tensor(1.0), torch.ones(3, 9), None, "rows .. do not fit"),
        (torch.ones(2, 8), torch.ones(8, 3).T, None, "weight has gaps"),
        (torch.ones(2, 8), torch.ones(3, 8), torch.ones(4), "bias .4. does not fit"),
        (torch.ones(2, 8), torch.ones(3, 8), torch.ones(6)[::2], "has gaps"),
        (torch.ones(2, 8), torch.ones(3, 8, device="meta"), None, "weight is torch.float32 on meta"),
    ],
)
def test_operands_that_the_kernel_cannot_take_are_refused(x, w, b, message):
    with pytest.raises(InvalidArgument, match=message):
        skinny_gemm(x, w, b)


def test_a_forked_child_computes_the_same():
    x, w, b = operands(9, 600, 500, torch.float32)
    whole = skinny_gemm(x, w, b)
    child = os.fork()
    if child == 0:  # the parent's threads do not exist here
        os._exit(0 if torch.equal(skinny_gemm(x, w, b), whole) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.fixture
def eager(monkeypatch):
    """Make tiny layers use the kernel, independent of timings."""
    monkeypatch.setattr(layers, "_MIN_WEIGHTS", 1)
    monkeypatch.setattr(layers, "faster_rows", lambda layers: frozenset(range(1, MOST_ROWS + 1)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_accelerated_model_agrees_and_gives_a_row_the_same_bits_in_every_linear_layer(eager, dtype):
    model = tiny_model("llama").to(dtype)
    ids = torch.arange(20)[None] % 32
    with torch.inference_mode():
        plain = model(ids).logits
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert accelerate(model) == sum(type(layer) is SkinnyLinear for layer in model.modules()) > 4
    with torch.inference_mode():
        found = model(ids).logits
    assert torch.allclose(
        found.float(), plain.float(), rtol=0, atol=30 * torch.finfo(dtype).eps * float(plain.abs().max())
    )
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert before.keys() == model.state_dict().keys()


def test_outside_inference_mode_a_layer_is_torchs_own(eager):
    model = torch.nn.Sequential(torch.nn.Linear(64, 48))
    x = torch.randn(3, 64)
    expected = model(x)
    accelerate(model)
    assert torch.equal(model(x), expected)
    model(x).sum().backward()
    assert model[0].weight.grad is not None


def test_copies_are_layers_of_their_own(eager):
    """Regression: a layer's forward used to be a closure over the layer.

    A copy of the model then still used the original's weights.
    """
    model = torch.nn.Sequential(torch.nn.Linear(64, 48, bias=False))
    accelerate(model)
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):  # noqa: S301  # our own bytes
        with torch.inference_mode():
            copied[0].weight.zero_()
            assert type(copied[0]) is SkinnyLinear
            assert not copied(torch.ones(2, 64)).any()
            assert model(torch.ones(2, 64)).any()


def test_weights_changed_later_are_used(eager):
    model = torch.nn.Sequential(torch.nn.Linear(64, 48))
    accelerate(model)
    model.double()
    with torch.inference_mode():
        assert model(torch.ones(2, 64).double()).dtype == torch.float64


def test_layers_that_are_not_plain_are_left_alone(eager):
    class Own(torch.nn.Linear):
        pass

    hooked, patched, double = torch.nn.Linear(64, 48), torch.nn.Linear(64, 48), torch.nn.Linear(64, 48).double()
    hooked.register_forward_hook(lambda *given: None)
    patched.forward = lambda input: input  # noqa: A002
    assert accelerate(torch.nn.ModuleList([Own(64, 48), hooked, patched, double])) == 0


def test_small_layers_and_wrong_sums_are_left_to_torch(monkeypatch):
    monkeypatch.setattr(layers, "faster_rows", lambda layers: frozenset({1}))
    assert accelerate(torch.nn.Linear(16, 16)) == 0
    large = torch.nn.Linear(512, 512)
    monkeypatch.setattr(layers, "skinny_gemm", lambda x, w, b: F.linear(x, w, b) + 0.01)
    assert accelerate(large) == 0
    monkeypatch.undo()
    monkeypatch.setattr(layers, "faster_rows", lambda layers: frozenset({1}))
    assert accelerate(large) == 1


@pytest.mark.parametrize(
    ("kernel", "rows"),
    [
        ({1: 2.0, 2: 1.0, 8: 0.5, 32: 1.05}, range(2, MOST_ROWS + 1)),  # clearly slower only for one row
        (
            {1: 1.09, 2: 0.5, 8: 0.5, 32: 0.5},
            range(1, MOST_ROWS + 1),
        ),  # not clearly slower: bitwise equality is worth more
        ({1: 1.09, 2: 1.0, 8: 1.0, 32: 1.0}, range(0)),  # never faster
        ({1: 0.5, 2: 0.5, 8: 0.5, 32: 3.0}, range(1, 13)),
    ],
)
def test_the_measurement_decides(monkeypatch, kernel, rows):
    monkeypatch.setattr(layers, "seconds", lambda linear, x, w: 1.0 if linear is F.linear else kernel[len(x)])
    assert layers.faster_rows([[torch.nn.Linear(16, 16)]]) == frozenset(rows)


@pytest.mark.parametrize("paused", [F.linear, skinny_gemm])
def test_one_pause_of_the_machine_decides_nothing(monkeypatch, paused):
    pauses = [0.5]
    usual = {F.linear: 0.002, skinny_gemm: 0.001}
    monkeypatch.setattr(
        layers, "seconds", lambda linear, x, w: pauses.pop() if linear is paused and pauses else usual[linear]
    )
    assert layers._compare([torch.nn.Linear(70, 50)], 1) == (0.001, 0.002)


def test_one_decision_for_all_layers(monkeypatch):
    """All layers decide together. A small layer that is faster with torch must not make passes differ in their bits."""

    def seconds(linear, x, w):
        return len(w) * (1.0 if linear is F.linear else 3.0 if len(w) < 100 else 0.5)

    monkeypatch.setattr(layers, "seconds", seconds)
    small, large = [torch.nn.Linear(16, 16)] * 4, [torch.nn.Linear(16, 1000)] * 2
    assert layers.faster_rows([small]) == frozenset()
    assert layers.faster_rows([small, large]) == frozenset(range(1, MOST_ROWS + 1))


def test_trials_cover_all_numbers_of_rows_and_large_layers_by_pieces():
    assert [count for _, counts in layers._TRIALS for count in counts] == list(range(1, MOST_ROWS + 1))
    sizes = [len(weight) for weight in layers._trial_weights([torch.nn.Linear(2, 20_000), torch.nn.Linear(2, 30)])]
    assert sizes == [8192, 8192, 30]


def test_a_target_can_be_wrapped_without(eager):
    model = tiny_model("llama").float()
    Target.wrap(model, accelerate=False)
    assert not any(isinstance(layer, SkinnyLinear) for layer in model.modules())
    model = tiny_model("llama").float()
    Target.wrap(model)
    assert any(isinstance(layer, SkinnyLinear) for layer in model.modules())


@pytest.mark.parametrize(("many", "expected"), [(0.9, True), (1.1, False)])
def test_long_passes_take_what_is_faster_for_them(monkeypatch, many, expected):
    """Regression: without bf16 units, torch's product over a prompt used to take seven times as long.

    For a large model these are minutes.
    """
    monkeypatch.setattr(layers, "_MIN_WEIGHTS", 1)
    monkeypatch.setattr(
        layers, "seconds", lambda linear, x, w: 1.0 if linear is F.linear else many if len(x) > MOST_ROWS else 0.5
    )
    model = torch.nn.Sequential(torch.nn.Linear(64, 48))
    assert accelerate(model) == 1
    x, calls = torch.randn(MOST_ROWS + 1, 64), []
    product = layers._product
    monkeypatch.setattr(layers, "_product", lambda *operands: calls.append(len(operands[0])) or product(*operands))
    with torch.inference_mode():
        model(x[:MOST_ROWS])
        model(x)
    assert calls == [MOST_ROWS, MOST_ROWS + 1][: 1 + expected]


def test_a_deep_model_in_bf16_is_a_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's results do not depend on the number of rows. So only the attention of a tree rounds differently."""
    monkeypatch.setattr(layers, "_MIN_WEIGHTS", 1)
    monkeypatch.setattr(layers, "faster_rows", lambda groups: frozenset(range(1, MOST_ROWS + 1)))
    model = tiny_model(num_hidden_layers=30, num_key_value_heads=2, hidden_size=256, intermediate_size=256)
    Target.wrap(model.to(torch.bfloat16))
