"""The ``vllm.general_plugins`` entry. Fixes two bugs of vLLM 0.32 and 0.33 in sampling, and adds drafts to neural ones."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)
TESTED = ("0.32", "0.33")
KEY = "suffolk"


def register() -> None:
    """Prepare vLLM, which calls ``register`` in every process.

    Workers get retrieved drafts beside those of a neural drafter, if they are configured (``neural.py``). On CPUs, a kernel that
    leaves temperatures of drafted rows uninitialised is replaced. Without the replacement, sampled output on CPUs is garbage with
    any drafter. Greedy output is correct.
    """
    if is_tested():
        from vllm.v1.worker.worker_base import WorkerWrapperBase

        wrap(WorkerWrapperBase, "init_device", lambda init: lambda worker: _init_device(init, worker))
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        from vllm.utils import cpu_triton_utils

        if hasattr(cpu_triton_utils, "_expand_kernel_impl"):
            cpu_triton_utils._expand_kernel_impl = expand
            log.info("Suffolk fixes vLLM's sampling of drafted tokens on CPUs (vLLM issue 55005)")


def is_tested() -> bool:
    """Whether this version of vLLM is one of ``TESTED``."""
    import vllm

    return bool(vllm.__version__.startswith(tuple(f"{version}." for version in TESTED)))


def _init_device(init: Callable[[Any], None], worker: Any) -> None:
    init(worker)
    config = worker.vllm_config
    if config.speculative_config is not None and KEY in (getattr(config, "additional_config", None) or {}):
        from suffolk.serving.integrations.vllm.neural import attach  # other processes need no datastores

        attach(worker.worker.model_runner, config)


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
    """Write each value of ``input_val`` to its rows of ``output``, with ``replace_from`` replaced.

    Args:
        output: tensor[rows] of any type; ``input_val``: tensor[requests] of the same type.
        cu_num_tokens: int[requests], cumulative rows.
    """
    ends = cu_num_tokens.long()
    values = input_val.masked_fill(input_val == replace_from, replace_to).repeat_interleave(
        ends.diff(prepend=ends[:1] * 0)
    )
    output[: len(values)] = values.to(output.dtype)
