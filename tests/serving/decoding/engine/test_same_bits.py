"""A token's logits have the same bits in passes of every shape, in fp32, bf16 and fp16 on CPUs."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from transformers.activations import GELUTanh

from suffolk.datastore import _native
from suffolk.datastore.errors import Internal, InvalidArgument
from suffolk.serving.decoding.engine.model import same_bits
from suffolk.serving.decoding.engine.model.ordered_attention import OrderedRows
from suffolk.serving.decoding.engine.model.same_bits import EvenActivation, bits_problem, kernels
from suffolk.serving.decoding.engine.model.skinny_gemm import ELEMENTS, SkinnyLinear
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.tree_attention import PackedRows, Terms, find_places
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout, chain, lay_out
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.drafters import eager_decoder, lying, random_tree
from tests.support.forked import suffolk
from tests.support.tiny_models import VOCAB, tiny_model

DTYPES = [dtype for dtype, element in ELEMENTS.items() if _native.skinny_gemm_supports(element)]
LENGTH = 150
"""Tokens of a text: more than two pieces of attention."""


WIDE = {"head_dim": 32}
"""Heads that fit tile instructions."""
FAST = _native.skinny_gemm_instructions(_native.Element.BFLOAT16, 32, 32) in ("AMX", "AVX-512 BF16")


def exact(family: str, dtype: torch.dtype, **changes: int) -> Target:
    return Target.wrap(tiny_model(family, **changes).to(dtype), exact="bits")


@pytest.mark.parametrize(
    ("family", "dtype", "changes"),
    [(family, dtype, {}) for family in ("llama", "qwen2-window", "gemma2", "phi") for dtype in DTYPES]
    + [(family, torch.bfloat16, WIDE) for family in ("llama", "gemma2")],
)
def test_a_row_has_the_same_bits_alone_in_a_tree_in_a_batch_and_in_a_prompt(
    family: str, dtype: torch.dtype, changes: dict[str, int]
) -> None:
    target = exact(family, dtype, **changes)
    assert target.same_bits
    tokens = np.random.default_rng(0).integers(0, VOCAB, LENGTH)
    cache = target.new_cache(3, LENGTH + 20)
    alone = []
    for token in tokens:
        alone.append(target.forward(cache, [0], [chain(np.array([token]))], [1]).logits[0])
        cache.lengths[0] += 1
    expected = torch.stack(alone)
    for chunk in (16, 67, LENGTH):
        cache.clear(1)
        found = []
        for begin in range(0, LENGTH, chunk):
            part = tokens[begin : begin + chunk]
            found.append(target.forward(cache, [1], [chain(part)], [len(part)]).logits)
            cache.lengths[1] += len(part)
        assert torch.equal(torch.cat(found), expected), chunk
    tree = random_tree(np.random.default_rng(1), 12, VOCAB)
    path = [int(np.argmax(tree.depths()))]
    while tree.parents[path[0]] >= 0:
        path.insert(0, int(tree.parents[path[0]]))
    cache.lengths[:2] = LENGTH - 1  # the last token is read again, with a tree behind it
    target.prefill(tokens[:40], cache, 2)
    whole = lay_out(int(tokens[-1]), tree)
    found_tree = target.forward(cache, [2, 1], [whole, whole], [0, 13]).logits[[0, *(node + 1 for node in path)]]
    for row, token in enumerate([tokens[-1], *tree.tokens[path]]):
        logits = target.forward(cache, [0], [chain(np.array([token]))], [1]).logits[0]
        assert torch.equal(logits, found_tree[row]), row
        cache.lengths[0] += 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(9, 3, 64, 64), (4, 4, 20, 36), (4, 1, 8, 24)])
@pytest.mark.parametrize(("window", "softcap"), [(None, None), (70, None), (100, 5.0)])
def test_attention_equals_that_of_torch_in_fp64(
    dtype: torch.dtype, shape: tuple[int, int, int, int], window: int | None, softcap: float | None
) -> None:
    heads, key_heads, key_width, value_width = shape
    numbers = torch.Generator().manual_seed(0)
    tree = random_tree(np.random.default_rng(1), 12, VOCAB)
    layouts = [lay_out(1, tree), chain(np.arange(130)), chain(np.arange(1))]
    lengths, slots = np.array([200, 0, 64]), [0, 1, 2]
    query, key, value = (
        torch.randn(rows, count, width, generator=numbers).to(dtype)
        for rows, count, width in ((144, heads, key_width), (900, key_heads, key_width), (900, key_heads, value_width))
    )
    query = query.transpose(0, 1)[None]
    terms = Terms(key_width**-0.5, window, softcap)
    spans = find_places(lengths, 300, slots, layouts).spans
    expected = PackedRows(spans).attend(query.double(), key.double(), value.double(), terms)
    before, found = torch.get_num_threads(), []
    for threads in (1, 5):
        torch.set_num_threads(threads)
        found.append(PackedRows(spans, ordered=True).attend(query, key, value, terms))
    torch.set_num_threads(before)
    assert torch.equal(*found)
    assert (found[0].double() - expected).abs().max() < 8 * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", ["tree", "chain"])
def test_what_a_draft_holds_cannot_spoil_other_rows(dtype: torch.dtype, shape: str) -> None:
    """A key that is not finite changes only the rows that see it."""
    layout = lay_out(1, random_tree(np.random.default_rng(1), 12, VOCAB)) if shape == "tree" else chain(np.arange(13))
    visible = np.tri(13, dtype=np.bool_) if layout.visible is None else layout.visible
    spans = find_places(np.array([70]), 100, [0], [layout]).spans
    query, key, value = (torch.randn(size).to(dtype) for size in ((1, 2, 13, 32), (100, 2, 32), (100, 2, 32)))
    expected = PackedRows(spans, ordered=True).attend(query, key, value, Terms(0.25, None, None))
    key[71], value[71] = torch.inf, torch.nan
    found = PackedRows(spans, ordered=True).attend(query, key, value, Terms(0.25, None, None))
    hidden = torch.from_numpy(~visible[:, 1])
    assert torch.equal(found[:, :, hidden], expected[:, :, hidden])
    assert found[:, :, ~hidden].isnan().all()


def test_a_row_must_see_one_token_at_each_depth() -> None:
    layout = TreeLayout(np.array([1, 2]), np.array([0, 1]), np.eye(2, dtype=np.bool_))
    with pytest.raises(Internal, match="one token at each depth"):
        OrderedRows.of(find_places(np.array([3]), 9, [0], [layout]).spans)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_drafted_texts_in_bf16_equal_plain_ones(temperature: float) -> None:
    """Many drafts are wrong. Before, most of these texts differed."""
    target = exact("llama", torch.bfloat16)
    rng = np.random.default_rng(3)
    settings = SamplingSettings(40, temperature)
    for size in (5, 33, 90):
        prompt = rng.integers(0, VOCAB, size).tolist()
        plain = eager_decoder(target, None).generate(prompt, settings)
        list(plain)
        drafted = eager_decoder(target, lying(rng, VOCAB)).generate(prompt, settings)
        list(drafted)
        assert drafted.tokens == plain.tokens


@pytest.mark.parametrize(
    ("dtype", "asked", "same"),
    [(torch.bfloat16, "auto", FAST), (torch.bfloat16, "near-ties", False), (torch.float32, "auto", False),
     (torch.float32, "bits", True), (torch.float64, "auto", False)],
)  # fmt: skip
def test_bits_are_the_default_where_the_processor_multiplies_bf16(dtype: torch.dtype, asked: str, same: bool) -> None:
    target = Target.wrap(tiny_model("llama", **WIDE).to(dtype), exact=asked)
    assert target.same_bits is same
    assert bool(kernels(target)) is same
    if same:
        layers = [layer for layer in target.model.modules() if isinstance(layer, torch.nn.Linear)]
        assert all(isinstance(layer, SkinnyLinear) and layer.kernel_many for layer in layers)


def show_kernels(words: list[str]) -> int:
    """Print whether bits are the default, whether a model that asks for them has them, and the kernels that it uses."""
    target = exact("llama", torch.bfloat16, **WIDE)
    print(Target.wrap(tiny_model("llama", **WIDE).bfloat16()).same_bits, target.same_bits, *kernels(target), sep=",")
    return 0


@pytest.mark.parametrize(("instructions", "most"), [("avx2", {"AVX2"}), ("avx512", {"AVX2", "AVX-512"})])
def test_older_processors_give_the_same_bits_where_they_are_asked_for(
    instructions: str, most: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In another process, because a process chooses its instructions once."""
    monkeypatch.setenv("SUFFOLK_INSTRUCTIONS", instructions)
    done = suffolk(function="tests.serving.decoding.engine.test_same_bits:show_kernels")
    assert done.returncode == 0, done.stderr
    auto, bits, *names = done.stdout.strip().split(",")
    assert (auto, bits) == ("False", "True")
    assert set(names) <= most | {"portable"}


@pytest.mark.parametrize(
    ("dtype", "accelerate", "asked"),
    [(torch.float64, True, "bits"), (torch.float32, False, "bits"), (torch.float32, True, "always")],
)
def test_impossible_wishes_are_refused(dtype: torch.dtype, accelerate: bool, asked: str) -> None:
    with pytest.raises(InvalidArgument, match=f"exact is '{asked}'"):
        Target.wrap(tiny_model("llama").to(dtype), accelerate=accelerate, exact=asked)


def test_a_model_with_other_products_gets_near_ties_with_one_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The products of GPT-2 are not linear layers, and torch computes them."""
    broken = exact("llama", torch.bfloat16)
    assert bits_problem(broken) is None
    layer = broken.model.model.layers[0].mlp.down_proj
    layer.kernel_rows = frozenset({1})
    layer.register_forward_hook(lambda module, inputs, output: output + (output.shape[1] > 1) / 64)
    assert "a draft tree" in (bits_problem(broken) or "")
    monkeypatch.setattr(same_bits, "skinny_gemm", lambda rows, weight, bias: F.linear(rows, weight, bias) + len(rows))
    assert "a linear layer of 32 to 32 over 1 rows" in (bits_problem(broken) or "")
    monkeypatch.undo()
    with caplog.at_level(logging.INFO):
        target = Target.wrap(tiny_model("gpt2").bfloat16(), exact="bits")
    messages = [each for each in caplog.records if "bits" in each.message or "near-ties" in each.message]
    assert len(messages) == 1
    if not target.same_bits:
        assert "torch computes layer transformer.h.0.attn.c_attn, a Conv1D" in messages[0].message


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", [torch.nn.SiLU(), GELUTanh()], ids=["silu", "gelu"])
def test_an_even_activation_maps_a_number_alike_among_any_others(dtype: torch.dtype, function: torch.nn.Module) -> None:
    """torch computes the ends of its threads' parts in another way than the rest."""
    numbers = (torch.randn(90_001, generator=torch.Generator().manual_seed(0)) * 3).to(dtype)
    before = torch.get_num_threads()
    try:
        for threads in (1, 3, 5):
            torch.set_num_threads(threads)
            expected = EvenActivation(function)(numbers)
            for begin, end in ((0, 1), (0, 90_000), (7, 77), (33_000, 66_001), (1, 40_003)):
                assert torch.equal(EvenActivation(function)(numbers[begin:end]), expected[begin:end])
        assert torch.equal(EvenActivation(function)(numbers[:640].view(8, 80).T), expected[:640].view(8, 80).T)
    finally:
        torch.set_num_threads(before)
