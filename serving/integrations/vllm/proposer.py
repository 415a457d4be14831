"""The proposer that vLLM calls after each pass (``vllm/v1/spec_decode/custom_class_proposer.py``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from suffolk.datastore.errors import Unsupported
from suffolk.datastore.settings import from_json
from suffolk.serving.integrations.core import CHAIN_MATCHES, DraftCore, FinishedText
from suffolk.serving.integrations.options import IntegrationOptions
from suffolk.serving.integrations.running_requests import Context
from suffolk.serving.integrations.vllm.patches import KEY, SUPPORTED, allow_no_rows, is_supported, wrap


class Proposer:
    """Proposes one chain per request, from datastores and the request's own text. Not thread-safe.

        LLM(model, speculative_config={"method": "custom_class", "model": "suffolk.vllm.Proposer", "num_speculative_tokens": 8},
            additional_config={"suffolk": {"datastores": ["grpc://localhost:7700/code"]}})

    ``num_speculative_tokens`` is the longest chain. ``additional_config["suffolk"]`` holds ``IntegrationOptions``. Only the rank
    whose drafts vLLM uses opens datastores; other ranks propose nothing.

    Attributes:
        on_finish: called with each finished sequence, in vLLM's worker process. A subclass may set it. The sequence may
            contain tokens accepted after the end of the answer.
    """

    on_finish: ClassVar[Callable[[FinishedText], None] | None] = None
    _host_drafts: ClassVar[bool] = False

    def __init__(self, vllm_config: Any) -> None:
        """Raises Unsupported for an unsupported version of vLLM, and the errors of ``read_config`` and ``DraftCore``."""
        require_version()
        allow_no_rows()
        model, speculative = vllm_config.model_config, vllm_config.speculative_config
        options = read_config(vllm_config)
        self._neural_tokens = options.neural_tokens
        self._most, self._max_length = int(speculative.num_speculative_tokens), int(model.max_model_len)
        self._core: DraftCore | None = None
        if _is_output_rank():
            tokenizer = None if model.skip_tokenizer_init else model.tokenizer
            self._core = DraftCore(
                options,
                model.get_vocab_size(),
                model.model,
                tokenizer,
                type(self).on_finish,
                short_matches=CHAIN_MATCHES,
                host_drafts=self._host_drafts,
            )
            install()
        self._batch: Any = None
        self._allowed = self._most

    def load_model(self, *arguments: Any, **named: Any) -> None:
        """Does nothing, because there is no draft model. vLLM requires the method."""

    def begin_step(self, batch: Any, scheduled: Any) -> None:
        """Receive the batch of the next ``propose``, and the scheduler's output for it (``install``)."""
        self._batch = batch
        allowed = getattr(scheduled, "num_spec_tokens_to_schedule", None)
        self._allowed = self._most if allowed is None else min(self._most, allowed)
        if self._core is not None:
            for request_id in scheduled.finished_req_ids:
                self._core.finish(request_id)

    def propose(
        self,
        sampled_token_ids: Sequence[Sequence[int]],
        num_tokens_no_spec: npt.NDArray[np.int32],
        token_ids_cpu: npt.NDArray[np.int32],
        slot_mappings: Any = None,
    ) -> list[list[int]]:
        """Return one chain per row; empty for rows that still read their prompt.

        Args:
            sampled_token_ids: new tokens of each row; empty while a row reads its prompt.
            num_tokens_no_spec: number of tokens of each row, including new ones.
            token_ids_cpu: int32[rows, max_model_len], the tokens.
        """
        decoding = [len(sampled) > 0 for sampled in sampled_token_ids]
        return self._draft(decoding, num_tokens_no_spec, token_ids_cpu, [[] for _ in decoding])

    def _draft(
        self,
        decoding: Sequence[bool],
        sizes: npt.NDArray[np.int32],
        texts: npt.NDArray[np.int32],
        own: Sequence[list[int]],
    ) -> list[list[int]]:
        """One chain per row. Rows that are not ``decoding`` keep vLLM's own chain. On ranks that do not draft, all rows
        keep it.

        ``sizes``, ``texts``: as in ``propose``. ``own``: vLLM's own chain of each row.
        """
        drafts = list(own)
        if self._core is None:
            return drafts
        rows = [row for row, decodes in enumerate(decoding) if decodes]
        contexts = [self._context(row, texts[row, : int(sizes[row])]) for row in rows]
        chains = self._core.draft_chains(
            contexts, self._allowed, len(rows) < len(drafts), [drafts[row] for row in rows]
        )
        for row, chain in zip(rows, chains, strict=True):
            drafts[row] = chain[: max(0, self._max_length - int(sizes[row]) - 1)]
        return drafts

    def stats(self) -> dict[str, float]:
        """See ``DraftCore.stats``; empty on ranks that do not draft."""
        return {} if self._core is None else self._core.stats()

    def _context(self, row: int, tokens: npt.NDArray[np.int32]) -> Context:
        if self._batch is None:
            return Context(tokens)
        request_id = self._batch.req_ids[row]
        prompt = int(self._batch.num_prompt_tokens[row])
        return Context(tokens, request_id, prompt_tokens=prompt, sampled=request_id in self._batch.random_reqs)


def require_version() -> None:
    """Raise Unsupported for an unsupported version of vLLM."""
    import vllm

    if not is_supported():
        raise Unsupported(
            f"vLLM is {vllm.__version__}; suffolk.vllm.Proposer is written for {' and '.join(SUPPORTED)}; install one of them"
        )


def read_config(vllm_config: Any) -> IntegrationOptions:
    """Suffolk's options in vLLM's configuration. Raises InvalidArgument if they are malformed."""
    additional = getattr(vllm_config, "additional_config", None) or {}
    return from_json(IntegrationOptions, additional.get(KEY, {}), f"additional_config[{KEY!r}]")


def _is_output_rank() -> bool:
    """Whether this is the first tensor-parallel rank, whose drafts vLLM uses. Only the last pipeline stage has a proposer."""
    from vllm.distributed.parallel_state import get_tensor_model_parallel_rank

    return int(get_tensor_model_parallel_rank()) == 0


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
