"""Options of the vLLM comparison."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suffolk.datastore.errors import InvalidArgument

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
    methods: tuple[str, ...] = METHODS
    batches: tuple[int, ...] = (1, 8)
    history: float = 0.4
    limit: int | None = None
    max_tokens: int = 96
    draft_tokens: int = 8
    threads: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if unknown := [name for name in self.methods if name not in METHODS]:
            raise InvalidArgument(f"method {unknown[0]!r} is unknown; use some of {', '.join(METHODS)}")
        if not 0 < self.history < 1:
            raise InvalidArgument(f"history is {self.history}; it must be above 0 and below 1")
        for name, least in (("max_tokens", 2), ("draft_tokens", 1), ("threads", 1)):
            if getattr(self, name) < least:
                raise InvalidArgument(f"{name} is {getattr(self, name)}; it must be {least} or more")

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
