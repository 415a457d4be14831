"""Measures the gain of drafting along recorded answers, with the production drafters and planner, without timing noise.

The model answers every prompt once, greedily. Each drafter then drafts along these answers. A pass takes its measured
cost, with some simulated noise. Differences of one percent between planners are visible.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

from research.command import add_seed, command_parser, run_command
from suffolk.benchmarks.decode.options import DecodingOptions
from suffolk.benchmarks.decode.setup import (
    encode_prompts,
    load_target,
    make_drafters,
    opened_datastores,
    require_drafters,
)
from suffolk.benchmarks.parts import exit_code, keep, stop_lines
from suffolk.benchmarks.prompts import STYLES, Prompt, load_prompts
from suffolk.benchmarks.report import describe_machine
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.files import write_json
from suffolk.datastore.text_table import format_table
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.cost_store import find_costs
from suffolk.serving.decoding.engine.loop.drafter import Drafter
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.decoding.replay.recording import Recording
from suffolk.serving.decoding.replay.replayer import Replayed, Replayer

MAX_NODES = 64
MEASURED = " now by a quick profile, which varies between runs; store costs with 'suffolk profile', or pass --costs"
DRAFT_SECONDS = 0.0005
"""Assumed cost of a draft. Networks cannot be replayed."""


@dataclass(slots=True)
class Outcome:
    """Results of one group: plain and drafted seconds of each answer, and total tokens and passes."""

    plain: list[float] = field(default_factory=list)
    drafted: list[float] = field(default_factory=list)
    tokens: int = 0
    passes: int = 0

    def add(self, replayed: Replayed) -> None:
        self.plain.append(replayed.plain_seconds)
        self.drafted.append(replayed.seconds)
        self.tokens += replayed.stats.tokens - 1
        self.passes += replayed.stats.steps

    def to_dict(self) -> dict[str, float]:
        ratios = [plain / drafted for plain, drafted in zip(self.plain, self.drafted, strict=True)]
        return {
            "speed_up": sum(self.plain) / sum(self.drafted),
            "median": median(ratios),
            "least": min(ratios),
            "mean_generated_length": self.tokens / self.passes,
        }


def record(target: Target, prompts: Sequence[tuple[Prompt, list[int]]], max_new_tokens: int) -> list[Recording]:
    """Return the model's greedy answers of two tokens or more."""
    capacity = max(len(ids) for _, ids in prompts) + max_new_tokens + 1
    answers: list[Recording] = []
    with Engine(target, slots=8, capacity=capacity, queue=len(prompts)) as engine:
        generations = [engine.generate(ids, SamplingSettings(max_new_tokens)) for _, ids in prompts]
        for (prompt, _), generation in zip(prompts, generations, strict=True):
            for _ in generation:
                pass
            answers.append(Recording.of(generation, target.vocab_size, target.name, group=prompt.group))
    return [answer for answer in answers if len(answer.generated) > 1]


def replay(
    answers: Sequence[Recording], drafters: Sequence[Drafter], costs: CostModel, noise: float, seed: int
) -> dict[str, dict[str, float]]:
    """Return the gain of each group.

    One drafter learns from answer to answer, as in service. With several drafters, each answer gets a new one.
    ``noise``: standard deviation of the logarithm of a pass's time; the mean is the measured cost.
    """
    rng = np.random.default_rng(seed)

    def seconds(rows: int, context: float) -> float:
        return costs.time(rows, 1, context) * float(rng.lognormal(-(noise**2) / 2, noise))

    replayers = [Replayer(drafter, MAX_NODES, costs, None, seconds, DRAFT_SECONDS) for drafter in drafters]
    found: dict[str, Outcome] = {}
    for number, answer in enumerate(answers):
        found.setdefault(answer.group, Outcome()).add(replayers[number % len(replayers)].replay(answer))
    return {group: outcome.to_dict() for group, outcome in found.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(args: argparse.Namespace) -> int:
    if not 0 <= args.noise <= 1:
        raise InvalidArgument(f"--noise is {args.noise}; it must be between 0 and 1")
    names = ("prompt-lookup", *(("datastore", "hybrid") if args.datastore else ()), "useless")
    stores = (args.datastore,) if args.datastore else ()
    options = DecodingOptions(
        model=args.model, prompts=tuple(args.prompts), datastores=stores, drafters=names, style=args.style, limit=args.limit,
        max_new_tokens=args.max_new_tokens, dtype=args.dtype, seed=args.seed,
    )  # fmt: skip
    with opened_datastores(options) as retrievers:
        require_drafters(options, retrievers)
        target = load_target(options)
        prompts, _ = encode_prompts(target, load_prompts(args.prompts, args.style, args.limit, args.seed), options)
        found = find_costs(target, 1, args.costs)
        answers = record(target, prompts, args.max_new_tokens)
        drafters = {
            "for the first time": [make_drafters(options, target, retrievers, 1, 1) for _ in answers],
            "again and again": [make_drafters(options, target, retrievers, 1, 1)],
        }
        gains = (
            (met, name, replay(answers, [each[name] for each in made], found.costs, args.noise, args.seed))
            for met, made in drafters.items()
            for name in names
        )
        done, stopped = keep(gains, len(drafters) * len(names), "replays of all answers")
    rows = [[f"{name}, met {met}", group, *gain.values()] for met, name, by in done for group, gain in by.items()]
    print(format_table(["drafter", "prompts", "speed-up", "median", "least", "M"], rows))
    print(f"costs of passes: {found.source}{MEASURED if found.source == 'measured' else ''}")
    for line in stop_lines(stopped):
        print(line)
    if args.json:
        results = {met: {name: by for each, name, by in done if each == met} for met in drafters}
        write_json(
            args.json, {"machine": describe_machine(), "costs": found.source, "stopped": stopped, "met": results}
        )
    return exit_code(stopped)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("replay", __doc__, "--model MODEL --datastore STORE --prompts prompts/ --limit 6")
    parser.add_argument("--model", required=True, help="model folder in the Hugging Face layout, or hub name")
    parser.add_argument(
        "--prompts", required=True, nargs="+", type=Path, metavar="PATH", help=".jsonl files or folders"
    )
    parser.add_argument("--datastore", metavar="STORE", help="folder of a datastore")
    parser.add_argument(
        "--style", choices=STYLES, default="both", help="for rows with a prefill (default: %(default)s)"
    )
    parser.add_argument("--limit", type=int, metavar="N", help="prompts of each file (default: all)")
    parser.add_argument(
        "--max-new-tokens", type=int, default=96, metavar="N", help="longest answer (default: %(default)s)"
    )
    parser.add_argument(
        "--dtype", default="auto", help="auto, float32, bfloat16, float16 or float64 (default: as stored)"
    )
    parser.add_argument(
        "--costs",
        type=Path,
        metavar="FILE",
        help="file of pass costs from suffolk profile (default: stored costs, else measured now)",
    )
    parser.add_argument("--noise", type=float, default=0.05, help="noise of a pass's time (default: %(default)s)")
    add_seed(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results there")
    return parser


if __name__ == "__main__":
    sys.exit(main())
