"""Linear layers over few rows on a CPU, by the kernel of ``csrc/kernels/skinny_gemm.h``.

In torch, a product over 2 to 64 rows takes up to several times as long as over one row, because the weights are read repeatedly.
The kernel reads the weights once, in the model's own parameters.

The bits of a row's result do not depend on the number of rows, the row's place or the number of threads. With
``exact``, ``accelerate`` uses the kernel for all layers and all numbers of rows. Then linear layers compute the same numbers for a
token in any pass. Otherwise it uses torch for each number of rows at which torch is more than 10 % faster over all layers. For
passes of more than ``MOST_ROWS`` rows, such as passes over prompts, it uses torch if torch is faster for 128 rows. The choice
depends on timings, so two loads of a model may differ in rounding.

Measured gain: a pass of SmolLM2-135M over 8 rows takes 47 % of torch's time in fp32 and 78 % in bf16
(docs/design/measured-mechanisms.md).
"""

from __future__ import annotations

import itertools
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F

from suffolk.datastore import _native
from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.serving.decoding.engine.model.operators import define_operator

MOST_ROWS = 64
ALL_ROWS = frozenset(range(1, MOST_ROWS + 1))

ELEMENTS = {
    torch.float32: _native.Element.FLOAT32,
    torch.bfloat16: _native.Element.BFLOAT16,
    torch.float16: _native.Element.FLOAT16,
}
_TRIALS = ((1, range(1, 2)), (2, range(2, 3)), (8, range(3, 13)), (32, range(13, MOST_ROWS + 1)))
"""Numbers of rows that are timed, and for each of them, the numbers of rows that it represents."""
_MANY = 128
"""Number of rows that is timed for all passes of more than ``MOST_ROWS`` rows, such as prompts."""
_ROUNDS = range(3, 25)
_TRIAL_SECONDS = 0.02
"""Only short calls are timed more than three times, because other load changes their times most."""
_TRIAL_OUTPUTS = 8192
"""Only this many outputs of a layer are timed at once, because torch may take seconds for a whole output layer."""
_PAGE_BYTES = 4096
_MIN_WEIGHTS = 1 << 16
"""Smaller layers take too little time to matter."""
_CLEARLY = 1.1
_PLAINLY = 3.0


def accelerate(model: torch.nn.Module, exact: bool = False) -> int:
    """Let the model's plain linear layers use the kernel where it is right and faster. Returns the number of these layers.

    ``exact``: use the kernel wherever it is right, for any number of rows. Takes well below a second for most models. Parameters
    and state_dict stay as they are: a layer's class becomes ``SkinnyLinear``. A layer qualifies if it is exactly
    ``torch.nn.Linear``, has no hooks, and is on a CPU, in fp32, bf16, or fp16 if the processor can convert it. Not thread-safe.
    No other thread may use the model.
    """
    groups: dict[tuple[int, int, torch.dtype], list[torch.nn.Linear]] = defaultdict(list)
    for layer in model.modules():
        if type(layer) is torch.nn.Linear and fits_kernel(layer, any_size=exact):
            groups[layer.out_features, layer.in_features, layer.weight.dtype].append(layer)
    right = [layers for layers in groups.values() if _is_right(layers[0])]
    rows = ALL_ROWS if exact else faster_rows(right) if right else frozenset()
    chosen = [layer for layers in right for layer in layers] if rows else []
    many = exact or (bool(chosen) and _share(right, _MANY) < 1)
    for layer in chosen:
        SkinnyLinear.take_over(layer, rows, many)
    return len(chosen)


class SkinnyLinear(torch.nn.Linear):
    """A ``torch.nn.Linear`` that uses the kernel in inference mode for the numbers of rows in ``kernel_rows``."""

    kernel_rows: frozenset[int]
    kernel_bits: int
    """``kernel_rows`` as a signed 64-bit number, an operator's argument. Bit i stands for i + 1 rows."""
    kernel_many: bool
    """Whether the layer also uses the kernel for more than ``MOST_ROWS`` rows."""

    @staticmethod
    def take_over(layer: torch.nn.Linear, kernel_rows: frozenset[int], kernel_many: bool = False) -> SkinnyLinear:
        """Turn ``layer`` itself into a ``SkinnyLinear``."""
        layer.__class__ = SkinnyLinear
        assert isinstance(layer, SkinnyLinear)
        layer.kernel_rows, layer.kernel_many = kernel_rows, kernel_many
        bits = sum(1 << rows - 1 for rows in kernel_rows)
        layer.kernel_bits = bits - (bits >> MOST_ROWS - 1 << MOST_ROWS)
        return layer

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002  # torch's own name for it
        if torch.compiler.is_compiling():
            if torch.is_grad_enabled() or not self.weight.is_cpu:
                return super().forward(input)
            operator = torch.ops.suffolk.skinny_gemm
            return operator(input, self.weight, self.bias, self.kernel_bits, self.kernel_many)  # type: ignore[no-any-return]
        rows = input.numel() // max(1, input.shape[-1])
        if (rows in self.kernel_rows or (self.kernel_many and rows > MOST_ROWS)) and torch.is_inference_mode_enabled():
            weight, bias = self.weight, self.bias
            if _problem(input, weight, bias) is None:
                return _product(input, weight, bias)
        return super().forward(input)


def skinny_gemm(
    rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, scales: torch.Tensor | None = None
) -> torch.Tensor:
    """``F.linear(rows, weight, bias)`` by the kernel, without gradients. Sums are fp32 and rounded once.

    Args:
        rows: [..., inputs], any strides; copied if a row is not contiguous.
        weight: [outputs, inputs], contiguous, of the rows' dtype, or int8 with ``scales``; read once for each 64 rows.
        bias: [outputs], contiguous.
        scales: float32[outputs], contiguous, by which each output's int8 weights are multiplied.

    Returns:
        [..., outputs], contiguous. Uses up to ``torch.get_num_threads()`` threads; safe to call from any thread.

    Raises:
        InvalidArgument: shapes do not fit, dtypes differ, an operand is not on a CPU, or a weight is not contiguous. Or
            there is no kernel for the dtype: kernels are for fp32, bf16, and fp16 if the processor converts it.
    """
    problem = _problem(rows, weight, bias, scales)
    if problem is not None:
        raise InvalidArgument(Field("skinny_gemm"), f": {problem}; use torch.nn.functional.linear")
    return _product(rows, weight, bias, scales)


def fits_kernel(layer: torch.nn.Linear, any_size: bool = False) -> bool:
    """Whether the kernel can compute the layer, and the layer is large enough to matter or may have ``any_size``."""
    hooks = layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks
    if any(hooks) or "forward" in vars(layer):
        return False
    if layer.weight.numel() < _MIN_WEIGHTS and not any_size:
        return False
    return _problem(layer.weight[:1], layer.weight, layer.bias) is None


def _linear(
    rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, kernel_bits: int, kernel_many: bool
) -> torch.Tensor:
    """The operator ``suffolk::skinny_gemm``: ``SkinnyLinear`` as one node of a compiled graph, for any number of rows."""
    count = rows.numel() // max(1, rows.shape[-1])
    wanted = kernel_many if count > MOST_ROWS else count >= 1 and bool(kernel_bits >> count - 1 & 1)
    if wanted and _problem(rows, weight, bias) is None:
        return _product(rows, weight, bias)
    return F.linear(rows, weight, bias)


def _shape_of_linear(
    rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, kernel_bits: int, kernel_many: bool
) -> torch.Tensor:
    return rows.new_empty((*rows.shape[:-1], weight.shape[0]))


def _problem(
    rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, scales: torch.Tensor | None = None
) -> str | None:
    """The reason why the kernel cannot take these operands; None if it can. Checks all its requirements."""
    dtype = rows.dtype
    element = ELEMENTS.get(dtype)
    if element is None or not _native.skinny_gemm_supports(element):
        return f"dtype {dtype} is not supported on this processor"
    if weight.ndim != 2 or rows.ndim == 0 or rows.shape[-1] != weight.shape[1]:
        return f"rows {list(rows.shape)} do not fit weights {list(weight.shape)}"
    of_weights = dtype if scales is None else torch.int8
    for name, operand, wanted in (
        ("rows", rows, dtype),
        ("weight", weight, of_weights),
        ("bias", bias, dtype),
        ("scales", scales, torch.float32),
    ):
        if operand is None:
            continue
        if operand.dtype is not wanted or not operand.is_cpu or operand.layout is not torch.strided:
            return f"{name} is {operand.dtype} on {operand.device} ({operand.layout}), not {wanted} on a cpu"
        if type(operand) not in (torch.Tensor, torch.nn.Parameter) or operand.is_neg():
            return f"{name} is a {type(operand).__name__} whose numbers are not in memory as they are"
    for name, operand in (("bias", bias), ("scales", scales)):
        if operand is not None and (operand.shape != weight.shape[:1] or not operand.is_contiguous()):
            return f"{name} {list(operand.shape)} does not fit weights {list(weight.shape)}, or has gaps"
    return None if weight.is_contiguous() else "weight has gaps"


def _product(
    rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, scales: torch.Tensor | None = None
) -> torch.Tensor:
    outputs, inputs = weight.shape
    *places, _ = rows.shape
    out = rows.new_empty((*places, outputs))
    flat = rows if rows.ndim == 2 else rows.reshape(math.prod(places), inputs)
    if flat.stride(1) != 1:
        flat = flat.contiguous()
    _native.skinny_gemm(
        ELEMENTS[rows.dtype],
        flat.data_ptr(),
        flat.stride(0),
        weight.data_ptr(),
        0 if scales is None else scales.data_ptr(),
        0 if bias is None else bias.data_ptr(),
        out.data_ptr(),
        len(flat),
        inputs,
        outputs,
        torch.get_num_threads(),
    )
    return out


@torch.inference_mode()
def _is_right(layer: torch.nn.Linear) -> bool:
    """Whether a few of a layer's outputs are within rounding of sums in fp64."""
    weight, bias = layer.weight[:100], None if layer.bias is None else layer.bias[:100]
    rows = some_rows(7, layer)
    found = skinny_gemm(rows, weight, bias).double()
    expected = F.linear(rows.double(), weight.double(), None if bias is None else bias.double())
    size = F.linear(rows.double().abs(), weight.double().abs(), None if bias is None else bias.double().abs())
    bound = torch.finfo(rows.dtype).eps * expected.abs() + 2.0**-24 * (layer.in_features / 8 + 8) * size
    return bool(((found - expected).abs() <= bound + 1e-30).all())


@torch.inference_mode()
def faster_rows(groups: list[list[torch.nn.Linear]]) -> frozenset[int]:
    """The numbers of rows for which all layers, grouped by shape, are to use the kernel."""
    shares = {count: _share(groups, count) for count, _ in _TRIALS}
    if min(shares.values()) >= 1:
        return frozenset()
    return frozenset(itertools.chain(*(rows for count, rows in _TRIALS if shares[count] <= _CLEARLY)))


@torch.inference_mode()
def _share(groups: list[list[torch.nn.Linear]], count: int) -> float:
    """The kernel's time for ``count`` rows through all layers, grouped by shape, divided by torch's time."""
    kernel = plain = 0.0
    for layers in groups:
        fastest = _compare(layers, count)
        kernel += len(layers) * fastest[0]
        plain += len(layers) * fastest[1]
    return kernel / plain


def _compare(layers: list[torch.nn.Linear], count: int) -> tuple[float, float]:
    """The least seconds of a layer over ``count`` rows: by the kernel, and by torch."""
    weights = itertools.cycle(_trial_weights(layers))
    rows = some_rows(count, layers[0])
    kernel: list[float] = []
    plain: list[float] = []
    while not _enough(kernel, plain):
        kernel.append(seconds(skinny_gemm, rows, next(weights)))  # in turn: other programs then slow both alike
        plain.append(seconds(F.linear, rows, next(weights)))
    parts = max(1.0, layers[0].out_features / _TRIAL_OUTPUTS)
    return min(kernel) * parts, min(plain) * parts


def _enough(kernel: list[float], plain: list[float]) -> bool:
    """Whether the timings suffice.

    Two timings suffice if the difference is clear. One timing does not suffice, because it may include a pause. If the difference
    is not clear, a few timings are needed, and more for short calls.
    """
    if len(plain) < 2:
        return False
    if max(sum(kernel), sum(plain)) > max(_PLAINLY * min(sum(kernel), sum(plain)), _TRIAL_SECONDS):
        return True
    return len(plain) >= _ROUNDS.stop or (len(plain) >= _ROUNDS.start and sum(kernel + plain) > _TRIAL_SECONDS)


def _trial_weights(layers: list[torch.nn.Linear]) -> Iterator[torch.Tensor]:
    """Yields the weights of one shape in turn, so that no call finds its weights in the processor's caches.

    One weight of every page is read first, because loading a page of the model's file takes longer than the product.
    """
    for layer in layers:
        pieces = max(1, layer.out_features // _TRIAL_OUTPUTS)
        for piece in range(pieces):
            weight = layer.weight[piece * _TRIAL_OUTPUTS :][:_TRIAL_OUTPUTS]
            weight[:, :: _PAGE_BYTES // weight.itemsize].sum()
            yield weight


define_operator(
    "skinny_gemm(Tensor rows, Tensor weight, Tensor? bias, int kernel_bits, bool kernel_many) -> Tensor",
    _linear,
    _shape_of_linear,
)


def some_rows(count: int, layer: torch.nn.Linear) -> torch.Tensor:
    """Deterministic input rows [count, inputs] in the layer's dtype."""
    return (
        torch.sin(torch.arange(count * layer.in_features, dtype=torch.float32)).view(count, -1).to(layer.weight.dtype)
    )


def seconds(product: Callable[..., torch.Tensor], *operands: torch.Tensor | None) -> float:
    """Seconds of one call."""
    begin = time.perf_counter()
    product(*operands)
    return time.perf_counter() - begin
