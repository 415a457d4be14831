"""Settings of a decoding measurement."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.drafters.drafter_config import DrafterConfig
from suffolk.serving.drafters.retrieval.limits import Limits
from suffolk.serving.transport.limits import MAX_THREADS, check_range

PLAIN = "none"
CONTROL = "none, again"
LIMITS = Limits()
"""Limits of every measured drafter."""


@dataclass(frozen=True, slots=True)
class DecodingOptions:
    """Settings of ``suffolk bench decode``. Checked when made.

    Attributes:
        model: folder or hub name of the target.
        prompts: .jsonl files, or folders of them.
        datastores: folders or URLs, for the drafters that need one or more.
        drafters: names of the registry, or useless; each is compared with plain decoding.
        slowed_ms: milliseconds that every call for drafts is made to take longer; 0..60,000.
        style: chat, prefill or both, for rows that have a prefill.
        limit: prompts of each file; None for all.
        rounds: how often all prompts are run.
        transformers: whether transformers' own ways of generating run as well, on an untouched copy of the model.
        models: drafters that are networks.
        assistant: the model that drafts for transformers' assisted generation; None to leave that out.
        control: whether plain decoding runs a second time in each turn, to show how much of a difference is noise.
        max_new_tokens, temperature, top_p, ignore_eos, seed: as in ``SamplingSettings``.
        max_nodes: largest tree.
        dtype, device: as in ``Target.load``.
        threads: CPU threads; None for torch's choice.
        costs: file of ``suffolk profile``; None for what it stored, or a quick look.
        record: file that takes a recording of every text of the first round, those of each drafter; None for none.
    """

    model: str
    prompts: tuple[Path, ...]
    datastores: tuple[str, ...] = ()
    models: DrafterConfig = DrafterConfig()
    drafters: tuple[str, ...] = ("prompt-lookup", "datastore", "hybrid")
    slowed_ms: float = 0.0
    style: str = "both"
    limit: int | None = None
    rounds: int = 1
    control: bool = False
    transformers: bool = False
    assistant: str | None = None
    max_new_tokens: int = 128
    temperature: float = 0.0
    top_p: float = 1.0
    ignore_eos: bool = False
    seed: int = 0
    max_nodes: int = 64
    dtype: str = "auto"
    device: str = "auto"
    threads: int | None = None
    costs: Path | None = None
    record: Path | None = None

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise InvalidArgument(f"rounds is {self.rounds}; it must be 1 or more")
        if not 0 <= self.slowed_ms <= 60_000:
            raise InvalidArgument(f"--slowed is {self.slowed_ms}; it must be between 0 and 60000 milliseconds")
        if self.threads is not None:
            check_range("--threads", self.threads, 1, MAX_THREADS)
        if len(set(self.drafters)) != len(self.drafters):
            raise InvalidArgument(f"drafters {', '.join(self.drafters)}: one is named twice")

    @property
    def ways(self) -> tuple[str, ...]:
        """Plain decoding, again if asked for, then every drafter."""
        control = (CONTROL,) if self.control else ()
        return (PLAIN, *control, *(name for name in self.drafters if name != PLAIN))

    def in_all_rounds(self, things: str) -> str:
        """``things`` that come once a round, in words."""
        return things if self.rounds == 1 else f"{things} in {self.rounds:,} rounds"


def given(datastore: str | None) -> tuple[str, ...]:
    """The datastores of a benchmark that takes at most one."""
    return () if datastore is None else (datastore,)
