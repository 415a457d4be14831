"""Settings of a decoding measurement."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from suffolk.datastore.checks import ABOVE_0, check_range
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.settings import MAX_THREADS, Count, Within, option
from suffolk.serving.decoding.drafters.drafter_config import DrafterConfig
from suffolk.serving.decoding.drafters.retrieval.limits import Limits
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings

PLAIN = "none"
CONTROL = "none, again"
LIMITS = Limits()
"""Limits of every measured drafter."""


@dataclass(frozen=True, slots=True)
class DecodingOptions:
    """Settings of ``suffolk bench decode`` and of other measurements that decode. Checked when made.

    Attributes:
        model: folder or hub name of the target.
        prompts: .jsonl files, or folders of them.
        datastores: folders or URLs, for drafters that read datastores.
        drafters: names of the registry, ``useless`` or ``recorded``; each is compared to plain decoding.
        slowed_ms: milliseconds added to every draft call; 0..60,000.
        style: whether rows with a prefill run as chat, with their prefill, or both.
        limit: number of prompts from each file; None for all.
        rounds: number of runs of all prompts.
        transformers: whether to measure transformers' own generation methods as well, on an untouched copy of the
            model.
        models: neural drafters to load.
        assistant: the draft model of transformers' assisted generation; None to leave that method out.
        control: whether plain decoding runs twice in each turn. The difference between both runs is noise.
        max_new_tokens, temperature, top_p, ignore_eos, seed: as in ``SamplingSettings``.
        max_nodes: the most nodes of a draft tree.
        dtype, device, exact: as in ``Target.load``.
        threads: CPU threads; None for torch's choice.
        costs: file of ``suffolk profile``. None uses its stored result; without one, a quick profile runs.
        record: file for recordings of every drafter's outputs in the first round; None to record nothing.
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
    exact: str = "auto"
    threads: int | None = None
    costs: Path | None = None
    record: Path | None = None

    def __post_init__(self) -> None:
        check_range("rounds", self.rounds, 1)
        check_range("--slowed", self.slowed_ms, 0, 60_000)
        if self.threads is not None:
            check_range("--threads", self.threads, 1, MAX_THREADS)
        if len(set(self.drafters)) != len(self.drafters):
            raise InvalidArgument(f"drafters {', '.join(self.drafters)}: one is named twice")

    @property
    def ways(self) -> tuple[str, ...]:
        """The methods in order: plain decoding, the control if set, then every drafter."""
        control = (CONTROL,) if self.control else ()
        return (PLAIN, *control, *(name for name in self.drafters if name != PLAIN))

    @property
    def sampling(self) -> dict[str, Any]:
        """The fields of ``settings``."""
        names = ("max_new_tokens", "temperature", "top_p", "seed", "ignore_eos")
        return {name: getattr(self, name) for name in names}

    @property
    def settings(self) -> SamplingSettings:
        """The sampling settings of all answers. Raises the errors of ``SamplingSettings``."""
        return SamplingSettings(**self.sampling)

    def in_all_rounds(self, things: str) -> str:
        """Describe the unit of progress: ``things``, and the number of rounds if there are several."""
        return things if self.rounds == 1 else f"{things} in {self.rounds:,} rounds"


@dataclass(frozen=True, kw_only=True)
class Epochs:
    """The epochs of rollouts."""

    samples: Count = option(8, "answers to each prompt in each epoch; they are one batch", group="prompts")
    temperatures: Annotated[tuple[Annotated[float, Within(ABOVE_0, 2)], ...], Within(1)] = option(
        (1.0, 1.0), "temperature of each epoch; as many epochs as values", several=True, group="prompts"
    )
    earlier_model: str | None = option(
        None, "the model that writes the answers of the first epoch (default: the measured model)", metavar="MODEL"
    )
    answers: Path | None = option(
        None,
        "file of plain answers, to which missing ones are added; all methods draft along them, in counted time",
        metavar="FILE",
    )
