"""Passes request ids, prompt lengths and finished requests to the proposer. vLLM does not pass them."""

from __future__ import annotations

import functools
from typing import Any


def install() -> None:
    """Wrap ``GPUModelRunner.execute_model``, once per process. CPU runners inherit it.

    Wrapping ``propose_draft_token_ids`` does not suffice: steps without tokens also report finished requests.
    """
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    original = GPUModelRunner.execute_model
    if hasattr(original, "suffolk"):
        return

    @functools.wraps(original)
    def execute_model(self: Any, scheduler_output: Any, *arguments: Any, **named: Any) -> Any:
        begin_step = getattr(getattr(self, "drafter", None), "begin_step", None)
        if begin_step is not None:
            begin_step(self.input_batch, scheduler_output)
        return original(self, scheduler_output, *arguments, **named)

    execute_model.suffolk = True  # type: ignore[attr-defined]
    GPUModelRunner.execute_model = execute_model
