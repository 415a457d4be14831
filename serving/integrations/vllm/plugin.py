"""The ``vllm.general_plugins`` entry. Fixes two bugs of vLLM 0.32 and 0.33 in sampling, and adds drafts to neural ones."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from suffolk.serving.integrations.vllm.patches import KEY, expand, is_tested, wrap

log = logging.getLogger(__name__)


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


def _init_device(init: Callable[[Any], None], worker: Any) -> None:
    init(worker)
    config = worker.vllm_config
    if config.speculative_config is not None and KEY in (getattr(config, "additional_config", None) or {}):
        from suffolk.serving.integrations.vllm.neural import attach  # other processes need no datastores

        attach(worker.worker.model_runner, config)
