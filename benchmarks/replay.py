"""What drafting would gain, without a clock's noise: real answers replayed through the production drafters, planner and accounts.

The model answers every prompt greedily, once; each drafter then drafts along these answers, and a pass takes what the measured
costs say, with some noise. So two planners can be compared to a percent, and a loss of two percent can be seen."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.decoding_options import DecodingOptions
from benchmarks.decoding_setup import encode_prompts, load_target, make_drafters, opened_datastore, require_drafters
from benchmarks.machine import describe_machine
from benchmarks.prompts import Prompt, load_prompts
from benchmarks.table import format_table
from datastore.draft_tree import DraftTree
from serving.decoding.cost_model import CostModel
from serving.decoding.cost_store import find_costs
from serving.decoding.drafter import Drafter, DraftRequest, tree_of
from serving.decoding.engine import Engine
from serving.decoding.planner import Offer, Planner
from serving.decoding.settings import SamplingSettings
from serving.decoding.target import Target
from serving.decoding.tree_layout import cut
from serving.decoding.verification import accept

MAX_NODES = 64
DRAFT_SECONDS = 0.0005
"""What a draft is taken to cost; those of networks cannot be replayed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A prompt's token ids and the model's own greedy answer."""

    group: str
    prompt: list[int]
    tokens: list[int]


@dataclass(slots=True)
class Outcome:
    """Of one group: plain and drafted seconds of each answer, tokens and passes of all."""

    plain: list[float] = field(default_factory=list)
    drafted: list[float] = field(default_factory=list)
    tokens: int = 0
    passes: int = 0

    def to_dict(self) -> dict[str, float]:
        ratios = [plain / drafted for plain, drafted in zip(self.plain, self.drafted, strict=True)]
        return {
            "speed_up": sum(self.plain) / sum(self.drafted),
            "median": median(ratios),
            "least": min(ratios),
            "mean_generated_length": self.tokens / self.passes,
        }


def record(target: Target, prompts: Sequence[tuple[Prompt, list[int]]], max_new_tokens: int) -> list[Answer]:
    """The model's greedy answers of two tokens or more."""
    capacity = max(len(ids) for _, ids in prompts) + max_new_tokens + 1
    with Engine(target, slots=8, capacity=capacity, queue=len(prompts)) as engine:
        generations = [engine.generate(ids, SamplingSettings(max_new_tokens)) for _, ids in prompts]
        for generation in generations:
            for _ in generation:
                pass
    answers = [
        Answer(prompt.group, ids, generation.tokens)
        for (prompt, ids), generation in zip(prompts, generations, strict=True)
    ]
    return [answer for answer in answers if len(answer.tokens) > 1]


def replay(
    answers: Sequence[Answer], drafters: Sequence[Drafter], costs: CostModel, noise: float, seed: int
) -> dict[str, dict[str, float]]:
    """Each group's gain. One drafter learns from answer to answer, as in service; with as many as answers each meets a new one.

    ``noise``: standard deviation of the log of a pass's time.
    """
    rng = np.random.default_rng(seed)
    found: dict[str, Outcome] = {}
    planner: Planner | None = None
    for number, answer in enumerate(answers):
        drafter = drafters[number % len(drafters)]
        if planner is None or len(drafters) > 1:
            planner = Planner(CostModel(costs.sizes.astype(int).tolist(), costs.measured.tolist()))
        seconds, passes = _replay_one(number, answer, drafter, planner, costs, noise, rng)
        outcome = found.setdefault(answer.group, Outcome())
        outcome.plain.append((len(answer.tokens) - 1) * costs.time(1, 1, 0.0))
        outcome.drafted.append(seconds)
        outcome.tokens += len(answer.tokens) - 1
        outcome.passes += passes
    return {group: outcome.to_dict() for group, outcome in found.items()}


def _replay_one(
    number: int,
    answer: Answer,
    drafter: Drafter,
    planner: Planner,
    costs: CostModel,
    noise: float,
    rng: np.random.Generator,
) -> tuple[float, int]:
    """Seconds and passes behind the prompt's own."""
    text = np.array(answer.prompt + answer.tokens, np.int32)
    length, seconds, passes = len(answer.prompt) + 1, 0.0, 0
    account = planner.open(drafter.name)
    while length < len(text):
        room, offers, path = len(text) - length - 1, [], np.empty(0, np.int64)
        if account.should_propose() and room > 0:
            proposal = drafter.propose([DraftRequest(number, text[:length], MAX_NODES)])[0]
            tree = cut(tree_of(proposal), room)
            offers = [Offer(drafter.name, account, tree.scores, DRAFT_SECONDS)]
            planner.choose(offers, 1, 1, 0.0)
            path = _accepted(tree.head(offers[0].verified), text[length:])
            offers[0].accepted = len(path)
        rows, new = 1 + sum(offer.verified for offer in offers), len(path) + 1
        spent = costs.time(rows, 1, 0.0) * float(rng.lognormal(0.0, noise))
        planner.record(offers, 1, rows, 0.0, spent)
        if offers:
            drafter.observe(number, text[length : length + new])
        seconds += spent + DRAFT_SECONDS * len(offers)
        length += new
        passes += 1
    drafter.release(number)
    account.close()
    return seconds, passes


def _accepted(tree: DraftTree, text: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """The nodes that a target which says ``text`` accepts."""
    depths = np.concatenate([[0], tree.depths()])
    says = np.append(text, -1)[np.minimum(depths, len(text))].astype(
        np.int64
    )  # at a node of depth d, wherever it stands
    return accept(tree.tokens, tree.parents, says)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.replay",
        description=__doc__,
        epilog="example:\n  python -m benchmarks.replay --model MODEL --datastore STORE --prompts prompts/ --limit 6",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", required=True, help="model folder in the Hugging Face layout, or hub name")
    parser.add_argument(
        "--prompts", required=True, nargs="+", type=Path, metavar="PATH", help=".jsonl files or folders"
    )
    parser.add_argument("--datastore", metavar="STORE", help="folder of a datastore")
    parser.add_argument("--style", choices=("chat", "prefill", "both"), default="both")
    parser.add_argument("--limit", type=int, metavar="N", help="prompts of each file (default: all)")
    parser.add_argument("--max-new-tokens", type=int, default=96, metavar="N")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--noise", type=float, default=0.05, help="of a pass's time (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results there")
    args = parser.parse_args()
    names = ("prompt-lookup", *(("datastore", "hybrid") if args.datastore else ()), "useless")
    options = DecodingOptions(
        args.model, tuple(args.prompts), args.datastore, drafters=names, style=args.style, limit=args.limit,
        max_new_tokens=args.max_new_tokens, dtype=args.dtype, seed=args.seed,
    )  # fmt: skip
    results: dict[str, Any] = {"machine": describe_machine(), "met": {}}
    with opened_datastore(options) as retriever:
        require_drafters(options, retriever)
        target = load_target(options)
        prompts, _ = encode_prompts(target, load_prompts(args.prompts, args.style, args.limit, args.seed), options)
        answers, costs = record(target, prompts, args.max_new_tokens), find_costs(target, 1).costs
        for met, count in (("for the first time", len(answers)), ("again and again", 1)):
            made = [make_drafters(options, target, retriever, 1, 1) for _ in range(count)]
            results["met"][met] = {
                name: replay(answers, [each[name] for each in made], costs, args.noise, args.seed) for name in names
            }
    rows = [
        [f"{name}, met {met}", group, *gain.values()]
        for met, by_name in results["met"].items()
        for name, groups in by_name.items()
        for group, gain in groups.items()
    ]
    print(format_table(["drafter", "prompts", "speed-up", "median", "least", "M"], rows))
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
