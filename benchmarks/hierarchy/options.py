"""Settings of a hierarchy measurement, and the levels that it measures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from suffolk.datastore.checks import check_range
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.settings import option
from suffolk.serving.decoding.drafters.hierarchy.stack_spec import (
    DRAFT_MODEL,
    MOST_LEVELS,
    RETRIEVAL,
    StackLevel,
    read_stack,
)
from suffolk.serving.decoding.drafters.neural.early_exit.config import KIND, ExitConfig
from suffolk.serving.decoding.drafters.neural.options import kind_of
from suffolk.serving.decoding.engine.sampling.settings import MIN_TEMPERATURE

Stack = tuple[StackLevel, ...]
_LAST = 1 << 20
"""Sort key of the draft model, larger than the number of layers of any exit."""


@dataclass(frozen=True, kw_only=True)
class HierarchyOptions:
    """Settings of ``suffolk hierarchy plan --measure``. Without a ``stack``, the best plans run.

    ``dtype``: data type of the draft model's weights.
    """

    GROUP = "measuring"
    prompts: tuple[Path, ...] = option((), ".jsonl files, or folders of them", metavar="PATH", several=True)
    draft_model: str | None = option(None, "a smaller model with the same tokenizer", metavar="MODEL")
    exit: tuple[int, ...] = option((), "use the model's first N layers as a level; may be repeated")
    head: tuple[Path, ...] = option((), "a trained exit; may be repeated", metavar="FOLDER")
    datastore: tuple[str, ...] = option(
        (), "folder of a datastore, or grpc://HOST:PORT/NAME; may be repeated; all are searched", metavar="STORE"
    )
    stack: tuple[str, ...] = option(
        (),
        "levels to predict and measure, written as for 'suffolk generate --levels'; may be repeated",
        metavar="LEVELS",
    )
    save_rates: Path | None = option(None, "file to write the measured costs and rates to, for --rates", written=True)
    limit: int | None = option(None, "number of prompts of each file, chosen at random (default: all)")
    max_new_tokens: int = option(64, "longest answer, in tokens")
    rounds: int = option(3, "number of runs of all prompts; the report has their medians")
    temperature: float = option(0.0, "temperature of the answers; 0 is greedy decoding (default: 0)", metavar="T")
    verification: str = option("match", "how levels and target accept drafted tokens", choices=("match", "rejection"))
    seed: int = option(0, "seed of the answers and of the choice of --limit (default: 0)")
    depth: int = 64
    dtype: str = "auto"


def read_stacks(options: HierarchyOptions) -> list[Stack]:
    """Return the stacks of --stack, without duplicates. Raises the errors of ``read_stack``."""
    return list(dict.fromkeys(read_stack(text) for text in options.stack))


def check_measuring(options: HierarchyOptions, stacks: Sequence[Stack]) -> None:
    """Check the options without loading anything.

    Raises:
        InvalidArgument: a value is out of range, or ``stacks`` and the options do not name the same levels.
        NotFound, Corruption: a --head cannot be read.
    """
    check_range("--rounds", options.rounds, 1)
    if options.max_new_tokens < 2:
        raise InvalidArgument(
            f"--max-new-tokens is {options.max_new_tokens}; it must be 2 or more: the first token is never drafted"
        )
    named = _named(options)
    if not stacks:
        return
    used = list(dict.fromkeys(level.name for stack in stacks for level in stack))
    needed = {DRAFT_MODEL: "--draft-model MODEL", "datastore": "--datastore STORE"}
    there = {level for level, _ in named}
    for level in used:
        if level in needed and level not in there:
            raise InvalidArgument(f"level {level} of --stack has no source of drafts; add {needed[level]}")
    for level, source in named:
        if level not in used:
            raise InvalidArgument(
                f"{source} adds level {level}, which no --stack uses; remove the option, or add the level to --stack"
            )


def wanted_levels(options: HierarchyOptions, stacks: Sequence[Stack]) -> list[tuple[str, float | None]]:
    """Return the levels to measure, by name and temperature.

    With ``stacks``, these are the levels of the stacks. Without stacks, these are all levels that the options allow, with each
    model at several temperatures. Raises InvalidArgument if there are no levels, or more levels than a stack can hold.
    """
    if stacks:
        return list(dict.fromkeys((level.name, level.temperature) for stack in stacks for level in stack))
    named = dict.fromkeys(level for level, _ in _named(options))
    sources = [name for name in RETRIEVAL if name != "datastore" or name in named]
    models = sorted(named.keys() - set(RETRIEVAL), key=lambda name: StackLevel(name, 1).exit_layers or _LAST)
    if len(models) >= MOST_LEVELS:
        raise InvalidArgument(
            f"{len(models)} models would draft; a stack takes at most {MOST_LEVELS - 1} besides retrieval; leave some out"
        )
    temperatures: list[float | None] = [None]
    if options.temperature > 0:
        temperatures += [0.0, max(MIN_TEMPERATURE, options.temperature / 2)]
    return [(name, None) for name in sources] + [(name, warmth) for name in models for warmth in temperatures]


def _named(options: HierarchyOptions) -> list[tuple[str, str]]:
    """Return the levels that the options name, each with its option."""
    found = [] if options.draft_model is None else [(DRAFT_MODEL, f"--draft-model {options.draft_model}")]
    found += [("datastore", f"--datastore {name}") for name in options.datastore]
    found += [(f"exit-{layers}", f"--exit {layers}") for layers in options.exit]
    return found + [(f"exit-{_layers(folder)}", f"--head {folder}") for folder in options.head]


def _layers(head: Path) -> int:
    """Return the number of layers below a trained exit."""
    if (kind := kind_of(head)) != KIND:
        raise InvalidArgument(
            f"--head {head} is of kind {kind}; only trained exits (early-exit) can be levels; leave it out"
        )
    return ExitConfig.load(head).layers
