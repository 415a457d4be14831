"""The ``vllm.general_plugins`` entry. Fixes vLLM's sampling of drafted tokens on CPUs, and adds retrieved drafts to neural
drafts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

from suffolk.datastore.errors import Unsupported
from suffolk.serving.integrations.vllm.patches import KEY, expand, is_supported, wrap
from suffolk.serving.integrations.vllm.proposer import Proposer


class NeuralProposer(Proposer):
    """Adds retrieved tokens to the drafts of vLLM's own drafter, after it has proposed. Not thread-safe."""

    _host_drafts: ClassVar[bool] = True

    def __init__(self, runner: Any, config: Any) -> None:
        """Raises the errors of ``Proposer``, and Unsupported for settings that do not allow drafting beside vLLM's drafter."""
        from vllm.v1.worker.gpu_model_runner import GPUModelRunner

        if not isinstance(runner, GPUModelRunner):
            raise Unsupported(
                "Suffolk drafts beside a neural drafter in model runner V1; set VLLM_USE_V2_MODEL_RUNNER=0"
            )
        if config.scheduler_config.async_scheduling:
            raise Unsupported("Suffolk drafts beside a neural drafter need its tokens; set async_scheduling to False")
        if getattr(config.speculative_config, "draft_sample_method", "greedy") != "greedy":
            raise Unsupported("Suffolk drafts beside greedy neural drafts; set draft_sample_method to greedy")
        super().__init__(config)
        self._runner = runner

    def begin_step(self, batch: Any, scheduled: Any) -> None:
        """The same as ``Proposer``, and also limits the tokens of vLLM's drafter in this step."""
        super().begin_step(batch, scheduled)
        if self._neural_tokens is not None:
            scheduled.num_spec_tokens_to_schedule = min(self._allowed, self._neural_tokens)

    def take(self, take_own: Callable[[], Any]) -> Any:
        """The drafts of a step (vLLM's ``DraftTokenIds``). ``take_own``: returns the drafts of vLLM's drafter."""
        own = take_own()
        if own is None or not own.req_ids:
            return own
        batch, rows = self._runner.input_batch, len(own.req_ids)
        decoding = (~self._runner.discard_request_mask.np[:rows]).tolist()
        drafts = self._draft(decoding, batch.num_tokens_no_spec, batch.token_ids_cpu, own.draft_token_ids)
        return replace(own, draft_token_ids=drafts)


def attach(runner: Any, config: Any) -> None:
    """Let ``runner`` return drafts of a ``NeuralProposer``, unless it has no drafter, or Suffolk's drafter. Raises the errors of
    ``NeuralProposer``."""
    drafter = getattr(runner, "drafter", None)
    if drafter is None or config.speculative_config.method == "custom_class":
        return
    proposer, take_own = NeuralProposer(runner, config), runner.take_draft_token_ids
    runner.take_draft_token_ids = lambda: proposer.take(take_own)
    drafter.begin_step, drafter.stats = proposer.begin_step, proposer.stats  # see ``proposer.install``


log = logging.getLogger(__name__)


def register() -> None:
    """Prepare vLLM, which calls ``register`` in every process.

    If configured, workers get retrieved drafts beside the drafts of a neural drafter (``attach``). On CPUs, a kernel
    that leaves temperatures of drafted rows uninitialised is replaced. Without the replacement, sampled output on CPUs
    is garbage with any drafter. Greedy output is correct.
    """
    if is_supported():
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
        attach(worker.worker.model_runner, config)
