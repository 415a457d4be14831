"""Passes request ids, prompt lengths and finished requests to the proposer. vLLM does not pass them."""

from __future__ import annotations

from typing import Any

from suffolk.serving.integrations.vllm.plugin import wrap


def install() -> None:
    """Wrap ``GPUModelRunner.execute_model``, once per process. CPU runners inherit it.

    Wrapping ``propose_draft_token_ids`` does not suffice: steps without tokens also report finished requests.
    """
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    wrap(GPUModelRunner, "execute_model", lambda execute: lambda *given, **named: _execute(execute, *given, **named))


def _execute(execute: Any, runner: Any, scheduler_output: Any, *arguments: Any, **named: Any) -> Any:
    begin_step = getattr(getattr(runner, "drafter", None), "begin_step", None)
    if begin_step is not None:
        begin_step(runner.input_batch, scheduler_output)
    return execute(runner, scheduler_output, *arguments, **named)
