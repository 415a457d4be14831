"""Gives a token's logits the same bits in passes of every shape. It chooses kernels and checks the results by trials.
The kernels of ``ordered_attention.py`` and ``skinny_gemm.py`` suffice, unless torch computes other matrix products of the model.
The results of torch's kernels depend on the number of rows.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from transformers.activations import ACT2CLS

from suffolk.datastore import _native
from suffolk.datastore.checks import check_choice
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.serving.decoding.engine.model.kv_cache import LayerShape, Shapes
from suffolk.serving.decoding.engine.model.language_model import LanguageModel
from suffolk.serving.decoding.engine.model.skinny_gemm import ELEMENTS, MOST_ROWS, SkinnyLinear, skinny_gemm, some_rows
from suffolk.serving.decoding.engine.model.tree_layout import chain, lay_out

EXACT = ("auto", "bits", "near-ties")
"""What drafts may change.

- ``bits``: nothing. All products use kernels whose results do not depend on the other rows of a pass.
- ``near-ties``: the choice between two logits that are nearly equal. Products use the faster kernel for each number of rows.
- ``auto``: ``bits`` if that costs at most 5 % of the tokens a second, else ``near-ties``. So it is ``bits`` in bf16 on CPUs that
  multiply bf16. Such CPUs have tile instructions (AMX) that fit all attention layers, or no tiles but AVX-512 BF16.
"""
_TILES, _PAIRS = "AMX", "AVX-512 BF16"
_CONTEXT = 4
_ROWS = (1, 2, 7, 16, 17, 33, MOST_ROWS, MOST_ROWS + 1, 2 * MOST_ROWS + 2)
"""Numbers of rows that are compared in each layer: whole tiles of rows of all kernels, and parts of tiles."""
_OUTPUTS = 8192
"""Only this many outputs of a layer are compared."""
_VECTORS = 64
"""The most numbers that torch computes together: two vectors of 16-bit numbers with AVX-512. Smaller groups divide this number."""
_GRAIN = 32_768
"""torch uses one thread for this many numbers, two for up to twice as many, and so on (at::internal::GRAIN_SIZE)."""
_GELU_THREADS = 16_384
"""Above this many numbers, torch computes GELU with all threads."""


def wants_bits(exact: str, dtype: torch.dtype, device: torch.device, accelerate: bool, shapes: Shapes) -> bool:
    """Whether a model's passes are to give the same bits. Raises InvalidArgument: ``exact`` is unknown, or impossible here."""
    check_choice("exact", exact, EXACT)
    element = ELEMENTS.get(dtype)
    able = accelerate and device.type == "cpu" and element is not None and _native.skinny_gemm_supports(element)
    if exact == "bits" and not able:
        raise InvalidArgument(
            Field("exact"),
            f" is 'bits', and the model is {dtype} on {device.type} with accelerate={accelerate}; "
            "the kernels that give the same bits are for fp32, bf16 and (on x86-64) fp16 on CPUs; use exact='auto'",
        )
    if exact == "auto" and able:
        return _costs_little(dtype, shapes)
    return exact == "bits"


def kernels(target: LanguageModel) -> dict[str, list[str]]:
    """The instructions that compute attention and linear layers, each with its shapes. Empty without ``same_bits``."""
    found: dict[str, list[str]] = {}
    if not target.same_bits:
        return found
    for shape in dict.fromkeys(shape for shape in target.shapes if shape is not None):
        found.setdefault(_attention(target.dtype, shape), []).append(
            f"attention {shape.key_width} | {shape.value_width}"
        )
    for outputs, inputs in _layers(target.model):
        name = _native.skinny_gemm_instructions(ELEMENTS[target.dtype], inputs, outputs)
        found.setdefault(name, []).append(f"linear {inputs} to {outputs}")
    return {name: list(dict.fromkeys(uses)) for name, uses in found.items()}


def kernel_lines(found: dict[str, list[str]]) -> list[str]:
    """``kernels`` as text."""
    if not found:
        return ["drafts may change a text at near-ties of logits (see --exact)"]
    return ["a token's logits have the same bits in any pass, by these instructions:"] + [
        f"  {name}: {', '.join(uses)}" for name, uses in found.items()
    ]


def bits_problem(target: LanguageModel) -> str | None:
    """The reason why a token's logits depend on the shape of its pass; None if no trial shows a difference.

    Compares single layers of each shape over several numbers of rows, then two tokens in three shapes of pass.
    """
    return _layer_problem(target.model) or _pass_problem(target)


@torch.inference_mode()
def _layer_problem(model: torch.nn.Module) -> str | None:
    for (outputs, inputs), layer in _layers(model).items():
        weight, bias = layer.weight[:_OUTPUTS], None if layer.bias is None else layer.bias[:_OUTPUTS]
        rows = some_rows(_ROWS[-1], layer)
        whole = skinny_gemm(rows, weight, bias)
        for count in _ROWS:
            if not torch.equal(skinny_gemm(rows[-count:], weight, bias), whole[-count:]):
                return f"they differ in a linear layer of {inputs} to {outputs} over {count} rows"
    return None


def _pass_problem(target: LanguageModel) -> str | None:
    tokens = (np.arange(MOST_ROWS + 6) * 7919 + 17) % target.vocab_size
    cache = target.new_cache(3, len(tokens))
    target.prefill(tokens[:_CONTEXT], cache, 0)
    cache.copy(0, 1, 0, _CONTEXT)
    last, drafted = tokens[_CONTEXT], tokens[_CONTEXT + 1]
    alone = []
    for token in (last, drafted):
        alone.append(target.forward(cache, [0], [chain(np.array([token]))], [1]).logits[0])
        cache.lengths[0] += 1
    siblings = np.array([(drafted + 1) % target.vocab_size, drafted], np.int32)
    tree = DraftTree(siblings, np.array([-1, -1], np.int32), np.ones(2, np.float32), np.ones(2, np.uint32))
    layouts = [lay_out(int(last), tree), chain(tokens)]
    logits = target.forward(cache, [1, 2], layouts, [3, len(tokens)]).logits
    shapes = {"a draft tree": logits[[0, 2]], "a prompt": logits[3 + _CONTEXT : 5 + _CONTEXT]}
    for shape, found in shapes.items():
        if not torch.equal(found, torch.stack(alone)):
            return f"they differ in {shape}{_suspect(target)}"
    return None


def _costs_little(dtype: torch.dtype, shapes: Shapes) -> bool:
    best = _native.skinny_gemm_instructions(ELEMENTS[dtype], 32, 16)  # the smallest product that fits tiles
    if best == _TILES:
        return all(_attention(dtype, shape) == _TILES for shape in shapes if shape is not None)
    return best == _PAIRS


def _attention(dtype: torch.dtype, shape: LayerShape) -> str:
    """The instructions of a layer's attention."""
    return _native.attend_instructions(ELEMENTS[dtype], shape.key_width, shape.value_width)


def _layers(model: torch.nn.Module) -> dict[tuple[int, int], SkinnyLinear]:
    """One layer of each shape (outputs, inputs) that the kernel computes."""
    layers = [layer for layer in model.modules() if isinstance(layer, SkinnyLinear)]
    return {(layer.out_features, layer.in_features): layer for layer in layers}


def _suspect(target: LanguageModel) -> str:
    """The first layer with a matrix that the kernel does not compute, as words to end a sentence with."""
    for name, module in target.model.named_modules():
        weight = getattr(module, "weight", None)
        matrix = isinstance(weight, torch.Tensor) and weight.ndim > 1
        if matrix and not isinstance(module, SkinnyLinear | torch.nn.Embedding):
            return f"; torch computes layer {name}, a {type(module).__name__}"
    return ""


class EvenActivation(torch.nn.Module):
    """Computes ``function``, a module that maps each number by itself. A result does not depend on the other numbers.

    torch divides the input among threads. It computes a part in vectors of numbers, but the last numbers of a part one by one. The
    two ways may differ in the last bit. So the input is padded until all parts consist of whole vectors.
    """

    def __init__(self, function: torch.nn.Module) -> None:
        super().__init__()
        self.function = function

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002  # torch's own name for it
        count = input.numel()
        whole = padded_count(count, torch.get_num_threads())
        if torch.compiler.is_compiling() or (whole == count and input.is_contiguous()):
            return self.function(input)  # type: ignore[no-any-return]
        padded = input.new_zeros(whole)
        padded[:count] = input.flatten()
        return self.function(padded)[:count].view(input.shape)  # type: ignore[no-any-return]


def padded_count(count: int, threads: int) -> int:
    """A number, at least ``count``, that torch divides among up to ``threads`` threads into parts of whole vectors."""
    whole = count
    while whole % (part := _VECTORS * _parts(whole, threads)):
        whole = -(-whole // part) * part
    return whole


def _parts(count: int, threads: int) -> int:
    """A multiple of the numbers of threads that torch may use."""
    return math.lcm(max(1, min(threads, -(-count // _GRAIN))), threads if count > _GELU_THREADS else 1)


def make_even(model: torch.nn.Module) -> None:
    """Replace the activation functions of transformers in ``model`` by ``EvenActivation``."""
    known = {entry[0] if isinstance(entry, tuple) else entry for entry in ACT2CLS.values()}
    kinds = tuple(kind for kind in known if isinstance(kind, type) and kind is not torch.nn.Identity)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, kinds) and not isinstance(module, EvenActivation) and not list(child.parameters()):
                setattr(module, name, EvenActivation(child))
