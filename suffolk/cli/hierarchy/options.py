"""The options of ``suffolk hierarchy plan``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from suffolk.cli.model import DeviceOptions
from suffolk.cli.options import setting
from suffolk.cli.options.setting import option
from suffolk.serving.drafters.hierarchy.plan import DEPTH


@dataclass(frozen=True, kw_only=True)
class PlanOptions(setting.Options):
    """What to plan from."""

    rates: Path | None = option(None, "costs and acceptance rates of the levels, as JSON")
    depth: int = option(DEPTH, "most tokens of a level: 256, with --measure 64")
    json: bool = option(False, "print the result as JSON")


@dataclass(frozen=True, kw_only=True)
class MeasuringOptions(setting.Options):
    """What to measure."""

    GROUP = "measuring"
    measure: bool = option(False, "measure the levels on prompts, plan, and run the plan beside plain decoding")
    model: str | None = option(None, "the target: a folder, or hub name")
    prompts: tuple[Path, ...] = option((), ".jsonl files, or folders of them", metavar="PATH", several=True)
    draft_model: str | None = option(None, "a smaller model with the same tokenizer", metavar="MODEL")
    exit: tuple[int, ...] = option((), "the model's first N layers; may be repeated")
    head: tuple[Path, ...] = option((), "a trained exit; may be repeated", metavar="FOLDER")
    datastore: tuple[str, ...] = option(
        (), "folder of a datastore, or grpc://HOST:PORT/NAME; may be repeated: all are searched", metavar="STORE"
    )
    stack: tuple[str, ...] = option(
        (),
        "predict and measure these levels, written as for 'suffolk generate --levels'; may be repeated",
        metavar="LEVELS",
    )
    save_rates: Path | None = option(None, "write what was measured, for --rates")
    limit: int | None = option(None, "prompts of each file, chosen at random (default: all)")
    max_new_tokens: int = option(64, "longest answer, in tokens")
    rounds: int = option(3, "runs of all prompts; medians count")
    temperature: float = option(0.0, "0: greedy (default: 0)", metavar="T")
    verification: str = option("match", "how levels and target accept tokens", choices=("match", "rejection"))
    seed: int = option(0, "of answers and of --limit (default: 0)")


@dataclass(frozen=True, kw_only=True)
class Options(PlanOptions, MeasuringOptions, DeviceOptions):
    """All of them."""
