"""Settings of a decoding measurement."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from suffolk.benchmarks.prompts import STYLES, load_prompts
from suffolk.datastore.checks import ABOVE_0
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.settings import MAX_THREADS, REQUIRED, Count, Within, check_fields, option
from suffolk.serving.decoding.drafters.drafter_config import DrafterConfig
from suffolk.serving.decoding.drafters.retrieval.limits import Limits
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings

PLAIN = "none"
CONTROL = "none, again"
LIMITS = Limits()
"""Limits of every measured drafter."""


@dataclass(frozen=True, kw_only=True)
class AnsweredPrompts:
    """Which prompts are answered, and how."""

    GROUP = "prompts"
    prompts: tuple[Path, ...] = option(REQUIRED, ".jsonl files, or folders of them", metavar="PATH", several=True)
    style: str = option(
        "both", "'prefill': an answer begins with the text 'prefill' of its prompt; 'chat': it does not", choices=STYLES
    )
    limit: Count | None = option(None, "number of prompts of each file, chosen at random (default: all)")
    max_new_tokens: Count = option(128, "longest answer, in tokens")
    ignore_eos: bool = option(False, "do not end at the model's end-of-text tokens")

    def require_prompts(self) -> None:
        """Raises the errors of ``load_prompts``. Commands call this before they load torch, which takes seconds."""
        load_prompts(self.prompts, self.style, self.limit, seed=0)


@dataclass(frozen=True, kw_only=True)
class SampledRounds:
    """How answers are sampled, how often, and how slow drafts are."""

    rounds: Count = option(1, "runs of all prompts", group="prompts")
    temperature: float = option(
        0.0, "temperature of the answers; 0 is greedy decoding (default: 0)", metavar="T", group="prompts"
    )
    top_p: float = option(1.0, "share of the probability to sample from; 1: no limit", metavar="P", group="prompts")
    slowed: Annotated[float, Within(0, 60_000)] = option(
        0.0,
        "milliseconds of delay in every call of a drafter; shows that drafting stops when it costs too much",
        metavar="MS",
        group="drafting",
    )


@dataclass(frozen=True, kw_only=True)
class OtherMethods:
    """The methods to measure beside plain decoding and the drafters."""

    transformers: bool = option(
        False,
        "also run transformers' generate: plainly, with its prompt lookup, and with suffolk.generate as the loop, which "
        "drafts from the first datastore",
        group="compared",
    )
    assistant: str | None = option(
        None, "also run transformers' generate, plainly and assisted by this model", metavar="MODEL", group="compared"
    )
    control: bool = option(False, "run plain decoding twice, to show the noise", group="compared")


@dataclass(frozen=True, kw_only=True)
class DecodingOptions(AnsweredPrompts, SampledRounds, OtherMethods):
    """Settings of ``suffolk bench decode`` and of other measurements that decode. Checked when made.

    Attributes:
        model: folder or hub name of the target.
        datastores: folders or URLs, for drafters that read datastores.
        drafters: names of the registry, ``useless`` or ``recorded``; each is compared to plain decoding.
        models: neural drafters to load.
        seed: as in ``SamplingSettings``.
        max_nodes: the most nodes of a draft tree.
        dtype, device, exact: as in ``Target.load``.
        threads: CPU threads; None for torch's choice.
        costs: file of ``suffolk profile``. None uses its stored result; without one, a quick profile runs.
        record: file for recordings of every drafter's outputs in the first round; None to record nothing.
    """

    model: str
    datastores: tuple[str, ...] = ()
    models: DrafterConfig = DrafterConfig()
    drafters: tuple[str, ...] = ("prompt-lookup", "datastore", "hybrid")
    seed: int = 0
    max_nodes: int = 64
    dtype: str = "auto"
    device: str = "auto"
    exact: str = "auto"
    threads: Annotated[int, Within(1, MAX_THREADS)] | None = None
    costs: Path | None = None
    record: Path | None = None

    def __post_init__(self) -> None:
        check_fields(self)
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
