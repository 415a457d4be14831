"""Measures the speed-up of the drafting policy along recorded answers, in counted time without timing noise.

Passes of the target, of a draft model and of an EAGLE head take the constant seconds below. Retrieval takes no time. So
two commits can be compared to a tenth of a percent on a busy machine.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from research.command import alternating, command_parser, run_command
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.text_table import format_table
from suffolk.serving.decoding.drafters.hybrid.drafter import HybridDrafter
from suffolk.serving.decoding.drafters.neural.draft_model.drafter import DraftModelDrafter
from suffolk.serving.decoding.drafters.neural.eagle.drafter import EagleDrafter
from suffolk.serving.decoding.drafters.neural.eagle.load import load_eagle
from suffolk.serving.decoding.drafters.retrieval.datastore import DatastoreDrafter
from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.drafters.retrieval.retrieval_source import RetrievalSource
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.loop.drafter import Drafter, FeatureDrafter
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.replay.read import read_recordings
from suffolk.serving.decoding.replay.recorded_states import RecordedStates
from suffolk.serving.decoding.replay.recording import Recording
from suffolk.serving.decoding.replay.replayer import SPARE, Replayer

ROWS = (1, 2, 4, 8, 16, 32, 64)
COSTS = {
    "135m-fp32": (0.057, 0.072, 0.076, 0.082, 0.095, 0.151, 0.222),
    "1.5b-bf16": (0.205, 0.207, 0.221, 0.256, 0.322, 0.465, 0.723),
    "0.5b-bf16": (0.107, 0.108, 0.112, 0.118, 0.133, 0.181, 0.273),
    "head-135m": (0.012, 0.013, 0.014, 0.016, 0.021, 0.029, 0.045),
}
"""Seconds of a pass by rows: medians on two idle cores with AVX-512 and bf16.

The head's seconds are estimated from its layers.
"""
NODES = 64


class CountedClock:
    """Adds up the constant seconds of model passes. Not thread-safe."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def count(self, owner: type, method: str, costs: CostModel, layouts_at: int) -> Any:
        """Patch ``owner.method`` to count its passes. ``layouts_at``: position of its layouts argument."""
        original = getattr(owner, method)

        def counted(*arguments: Any) -> Any:
            self.seconds += costs.time(sum(map(len, arguments[layouts_at])), 1, 0.0)
            return original(*arguments)

        return patch.object(owner, method, counted)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "policy_speed", __doc__, "answers.jsonl --datastore STORE --costs 135m-fp32 --temperature 0"
    )
    add = parser.add_argument
    add("answers", type=Path, metavar="ANSWERS", help="recorded by research.record_answers")
    add("--datastore", required=True, metavar="STORE", help="folder")
    add("--costs", required=True, choices=COSTS, help="of the target's passes")
    add("--temperature", type=float, default=0.0, metavar="T", help="temperature of the answers (default: %(default)s)")
    add("--draft-model", metavar="MODEL", help="a 0.5B draft model, in addition to retrieval")
    add("--eagle", type=Path, metavar="HEAD", help="an EAGLE head, in addition to retrieval; needs --model")
    add("--model", metavar="MODEL", help="the target of the head")
    return parser


def _run(args: argparse.Namespace) -> int:
    fitting = [each for each in read_recordings([args.answers]) if _fits(each, args.temperature)]
    answers = alternating(fitting, lambda each: each.group)
    longest = max(len(each.prompt) + each.settings.max_new_tokens for each in answers) + NODES + SPARE
    clock, costs, vocab = CountedClock(), CostModel(ROWS, COSTS[args.costs]), answers[0].vocab_size
    with open_datastore(args.datastore) as store:
        retrieval: list[RetrievalSource] = [PromptLookupDrafter(vocab), DatastoreDrafter(store, vocab)]
        single: dict[str, Drafter] = {
            "prompt-lookup": PromptLookupDrafter(vocab),
            "datastore": DatastoreDrafter(store, vocab),
        }
        models, target, counting = _model(args, clock, vocab, longest)
        drafters: dict[str, Drafter] = {**({} if models else single), "hybrid": HybridDrafter(retrieval, models)}
        replayers = {
            name: Replayer(each, NODES, costs.copy(), _states(target, each, longest)) for name, each in drafters.items()
        }
        totals: defaultdict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0] * 4)
        with counting, patch.object(time, "perf_counter", lambda: clock.seconds):
            for answer in answers:
                for name, replayer in replayers.items():
                    found = replayer.replay(answer)
                    for group in (answer.group, "all"):
                        values = (found.plain_seconds, found.seconds, found.stats.tokens - 1, found.stats.steps)
                        totals[name, group] = [a + b for a, b in zip(totals[name, group], values, strict=True)]
    rows = [
        [name, group, f"{plain / seconds:.4f}", f"{tokens / steps:.3f}"]
        for (name, group), (plain, seconds, tokens, steps) in totals.items()
    ]
    print(format_table(["drafter", "set", "speed-up", "M"], sorted(rows)))
    return 0


def _model(
    args: argparse.Namespace, clock: CountedClock, vocab: int, longest: int
) -> tuple[list[Drafter], Target | None, Any]:
    """Return the selected neural drafter, the target that it reads, and the patch that counts its passes."""
    if args.draft_model:
        model, costs = Target.load(args.draft_model), CostModel(ROWS, COSTS["0.5b-bf16"])
        drafter = DraftModelDrafter(model, vocab, 1, longest, costs=costs.copy())
        return [drafter], None, clock.count(Target, "forward", costs, 3)
    if args.eagle:
        target, costs = Target.load(args.model), CostModel(ROWS, COSTS["head-135m"])
        with patch("suffolk.serving.decoding.drafters.neural.eagle.drafter.measure_head", lambda *_: costs.copy()):
            head = load_eagle(args.eagle, target, 1, longest)
        return [head], target, clock.count(EagleDrafter, "_forward", costs, 2)
    return [], None, patch.object(clock, "seconds", 0.0)


def _states(target: Target | None, drafter: Drafter, longest: int) -> RecordedStates | None:
    reads = target is not None and isinstance(drafter, FeatureDrafter) and drafter.layers
    return RecordedStates(target, drafter, longest) if reads and target is not None else None


def _fits(answer: Recording, temperature: float) -> bool:
    return answer.settings.temperature == temperature and len(answer.generated) > 1


if __name__ == "__main__":
    sys.exit(main())
