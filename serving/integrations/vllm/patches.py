"""Patches of vLLM, and the supported versions. Only 0.32 was tested (docs/how-to/vllm.md)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

SUPPORTED = ("0.32", "0.33")
KEY = "suffolk"
"""Key of Suffolk's options in ``additional_config``."""


def is_supported() -> bool:
    """Whether this version of vLLM is one of ``SUPPORTED``."""
    import vllm

    return bool(vllm.__version__.startswith(tuple(f"{version}." for version in SUPPORTED)))


def allow_no_rows() -> None:
    """Let top-k sampling without top-p accept steps without drafts. Otherwise vLLM's engine crashes."""
    from vllm.v1.sample.ops import topk_topp_sampler

    wrap(topk_topp_sampler, "apply_top_k_only", lambda cut: lambda logits, k: cut(logits, k) if len(logits) else logits)


def wrap(owner: Any, name: str, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace the function ``owner.name`` by ``wrapper`` of it, once per process."""
    original = getattr(owner, name)
    if not hasattr(original, "suffolk"):
        replacement: Any = functools.wraps(original)(wrapper(original))
        replacement.suffolk = True
        setattr(owner, name, replacement)


def expand(
    output: Any, input_val: Any, cu_num_tokens: Any, replace_from: Any, replace_to: Any, MAX_NUM_TOKENS: Any = None
) -> None:
    """Write each value of ``input_val`` to its rows of ``output``, or ``replace_to`` if the value is ``replace_from``.

    Args:
        output: tensor[rows] of any type; ``input_val``: tensor[requests] of the same type.
        cu_num_tokens: int[requests], cumulative rows.
    """
    ends = cu_num_tokens.long()
    values = input_val.masked_fill(input_val == replace_from, replace_to).repeat_interleave(
        ends.diff(prepend=ends[:1] * 0)
    )
    output[: len(values)] = values.to(output.dtype)
