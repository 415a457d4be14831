"""Checks by a trial whether a token's logits have the same bits in passes of different shapes.

With the kernels of ``ordered_attention.py`` and ``skinny_gemm.py`` they have. A model may also contain products of torch's own.
Their kernels depend on the number of rows.
"""

from __future__ import annotations

import numpy as np
import torch

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.engine.model.language_model import LanguageModel
from suffolk.serving.engine.model.skinny_gemm import MOST_ROWS, SkinnyLinear
from suffolk.serving.engine.model.tree_layout import chain, lay_out

EXACT = ("auto", "bits", "near-ties")
"""What drafts may change.

- ``bits``: nothing. All products use kernels whose results do not depend on the other rows of a pass.
- ``near-ties``: near-ties of two logits. Products use the faster kernel for each number of rows.
- ``auto``: ``bits`` in bf16 and fp16 on CPUs, else ``near-ties``.
"""
_CONTEXT = 4


def wants_bits(exact: str, dtype: torch.dtype, device: torch.device, accelerate: bool) -> bool:
    """Whether a model's passes are to give the same bits. Raises InvalidArgument: ``exact`` is unknown, or impossible here."""
    if exact not in EXACT:
        raise InvalidArgument(f"exact is {exact!r}; it must be one of {', '.join(EXACT)}")
    able = accelerate and device.type == "cpu" and dtype != torch.float64
    if exact == "bits" and not able:
        raise InvalidArgument(
            f"exact is 'bits', and the model is {dtype} on {device.type} with accelerate={accelerate}; "
            "the kernels that give the same bits are for fp32, bf16 and fp16 on CPUs; use exact='auto'"
        )
    return able and (exact == "bits" or (exact == "auto" and dtype.itemsize == 2))


def bits_problem(target: LanguageModel) -> str | None:
    """The reason why a token's logits depend on the shape of its pass; None if two tokens have the same bits in three shapes."""
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


def _suspect(target: LanguageModel) -> str:
    """The first layer with a matrix that the kernel does not compute, as the end of a sentence."""
    for name, module in target.model.named_modules():
        weight = getattr(module, "weight", None)
        matrix = isinstance(weight, torch.Tensor) and weight.ndim > 1
        if matrix and not isinstance(module, SkinnyLinear | torch.nn.Embedding):
            return f"; torch computes layer {name}, a {type(module).__name__}"
    return ""
