"""Options of the vLLM comparison."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from suffolk.datastore.checks import ABOVE_0
from suffolk.datastore.settings import Count, Within, check_fields

NONE, SUFFOLK, SERVICE = "none", "suffolk", "suffolk-service"
"""``SUFFOLK`` opens the datastores' folders, and ``SERVICE`` asks a draft service."""
METHODS = (NONE, "ngram", "suffix", SUFFOLK, SERVICE)


@dataclass(frozen=True, slots=True)
class VllmOptions:
    """Settings of the comparison. Checked when made.

    Attributes:
        model: a Hugging Face folder or hub name; it runs in fp32.
        prompts: .jsonl files (``suffolk.benchmarks.prompts``).
        work: folder for the datastore of the answers, which is made anew.
        datastores: datastores with the model's tokenizer. None: one of the answers to the history.
        methods: names from ``METHODS``. ``none`` always runs.
        batches: batch sizes.
        history: share of each set's prompts that every method answers first. Suffolk and ``suffix`` remember all answers.
        limit: the most prompts from each set.
        max_tokens: the most tokens of an answer.
        draft_tokens: the most tokens of a draft.
        threads: threads of each engine.
        seed: seed of the choice of prompts.

    Raises:
        InvalidArgument: a method is unknown, or a number is out of range.
    """

    model: str
    prompts: tuple[Path, ...]
    work: Path
    datastores: tuple[Path, ...] = ()
    methods: tuple[Annotated[str, METHODS], ...] = METHODS
    batches: tuple[int, ...] = (1, 8)
    history: Annotated[float, Within(ABOVE_0, math.nextafter(1, 0), "above 0 and below 1")] = 0.4
    limit: int | None = None
    max_tokens: Annotated[int, Within(2)] = 96
    draft_tokens: Count = 8
    threads: Count = 1
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self)

    def answers(self, method: str) -> Path:
        """Folder of the live datastore to which the engine of ``method`` appends its answers."""
        return self.work / f"answers-{method}"

    def arguments(self, method: str, datastores: list[str]) -> dict[str, Any]:
        """Return the arguments of ``vllm.LLM`` for a method. ``datastores``: folders or URLs, for Suffolk."""
        shared: dict[str, Any] = {
            "model": self.model,
            "dtype": "float32",
            "enforce_eager": True,
            "max_num_seqs": max(self.batches),
            "max_model_len": 2048,
            "disable_log_stats": False,
            "distributed_executor_backend": "uni",
        }
        if method == NONE:
            return shared
        speculative: dict[str, Any] = {"method": method, "num_speculative_tokens": self.draft_tokens}
        if method in (SUFFOLK, SERVICE):
            shared["additional_config"] = {SUFFOLK: {"datastores": datastores, "remember": str(self.answers(method))}}
            speculative |= {"method": "custom_class", "model": "suffolk.vllm.Proposer"}
        return shared | {"speculative_config": speculative}
