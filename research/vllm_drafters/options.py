"""Options of the vLLM comparison."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from suffolk.datastore.checks import ABOVE_0
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.settings import Count, Within, check_fields

NONE, SUFFOLK, SERVICE = "none", "suffolk", "suffolk-service"
"""``SUFFOLK`` opens the datastores' folders, and ``SERVICE`` asks a draft service."""
EAGLE, BOTH = "eagle", "eagle-suffolk"
"""vLLM's drafter with a head, alone and beside Suffolk's drafts."""
METHODS = (NONE, "ngram", "suffix", SUFFOLK, SERVICE)
HEAD_METHODS = (EAGLE, BOTH)
_NEURAL_TOKENS = 3


@dataclass(frozen=True, slots=True)
class VllmOptions:
    """Settings of the comparison. Checked when made.

    Attributes:
        model: a Hugging Face folder or hub name; it runs in fp32.
        prompts: .jsonl files (``suffolk.benchmarks.prompts``).
        work: folder for the datastore of the answers, which is made anew.
        datastores: datastores with the model's tokenizer. None: one of the answers to the history.
        methods: names from ``METHODS``, and with a head from ``HEAD_METHODS``. ``none`` always runs.
        batches: batch sizes.
        history: share of each set's prompts that every method answers first. Suffolk and ``suffix`` remember all answers.
        limit: the most prompts from each set.
        max_tokens: the most tokens of an answer.
        draft_tokens: the most tokens of a draft.
        threads: threads of each engine.
        seed: seed of the choice of prompts.
        head: a folder with an EAGLE head in vLLM's layout.
        row_cost: Suffolk's option; None: measured while running.

    Raises:
        InvalidArgument: a method is unknown or lacks its head, or a number is out of range.
    """

    model: str
    prompts: tuple[Path, ...]
    work: Path
    datastores: tuple[Path, ...] = ()
    methods: tuple[Annotated[str, METHODS + HEAD_METHODS], ...] = METHODS
    batches: tuple[int, ...] = (1, 8)
    history: Annotated[float, Within(ABOVE_0, math.nextafter(1, 0), "above 0 and below 1")] = 0.4
    limit: int | None = None
    max_tokens: Annotated[int, Within(2)] = 96
    draft_tokens: Count = 8
    threads: Count = 1
    seed: int = 0
    head: Path | None = None
    row_cost: Annotated[float, Within(0.0, 1.0)] | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.head is None and (alone := [name for name in self.methods if name in HEAD_METHODS]):
            raise InvalidArgument(f"method {alone[0]} needs a head; give --head")

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
        if method in (SUFFOLK, SERVICE, BOTH):
            found: dict[str, Any] = {"datastores": datastores, "remember": str(self.answers(method))}
            found |= {} if self.row_cost is None else {"row_cost": self.row_cost}
            found |= {"neural_tokens": _NEURAL_TOKENS} if method == BOTH else {}
            shared["additional_config"] = {SUFFOLK: found}
            speculative |= {"method": "custom_class", "model": "suffolk.vllm.Proposer"}
        if method in HEAD_METHODS:
            speculative |= {"method": EAGLE, "model": str(self.head)}
        if method == EAGLE:
            speculative["num_speculative_tokens"] = _NEURAL_TOKENS
        return shared | {"speculative_config": speculative}
