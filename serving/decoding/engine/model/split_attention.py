"""Attention of a tree's rows in two parts: one over the cached tokens, without a mask, and one over the tree's own rows.

Both parts are merged by their log-sum-exp, so the mask does not grow with the context. Split attention is used on CPUs for
large trees after long contexts. Small trees are faster with one mask.

Measured gain: 3 to 7 % of a pass with ``LEAST_PAIRS`` or more (docs/design/measured-mechanisms.md).
"""

from __future__ import annotations

import torch

LEAST_PAIRS = 100_000
"""Number of pairs (row of the tree, cached token) from which the split is faster; measured on one CPU with AVX-512."""


def split_attention(
    rows: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, cached: int, scaling: float
) -> torch.Tensor:
    """[1, heads, rows, width], equal to ``F.scaled_dot_product_attention`` with a mask that hides no cached token.

    Args:
        rows: [1, heads, rows, width], on a CPU.
        keys, values: [1, heads, cached + own, width].
        mask: additive, [rows, own]; each row sees at least one of its own keys.
        cached: the number of keys that all rows see; 1 or more (torch's kernel divides by it).
    """
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    context, context_sum = attention(rows, keys[:, :, :cached], values[:, :, :cached], scale=scaling)
    own, own_sum = attention(rows, keys[:, :, cached:], values[:, :, cached:], attn_mask=mask, scale=scaling)
    share = torch.sigmoid(context_sum - own_sum)[..., None]  # weight of the context in the merged result
    return torch.lerp(own.to(share.dtype), context.to(share.dtype), share).to(rows.dtype)
