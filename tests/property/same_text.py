"""Checks that output is the same with any drafter in any batch.

Random requests join and leave a loop; each is compared to decoding alone.

python -m tests.property.same_text --prompts 200      # every temperature, drafter and batch size; fails at the first difference
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from suffolk.serving.decoding.drafters.hierarchy.drafter import HierarchyDrafter
from suffolk.serving.decoding.drafters.hierarchy.retrieval_level import RetrievalLevel
from suffolk.serving.decoding.drafters.hybrid.drafter import HybridDrafter
from suffolk.serving.decoding.drafters.neural.draft_model.drafter import DraftModelDrafter
from suffolk.serving.decoding.drafters.neural.eagle.drafter import EagleDrafter
from suffolk.serving.decoding.drafters.neural.eagle.model import EagleHead
from suffolk.serving.decoding.drafters.neural.eagle.training import new_head
from suffolk.serving.decoding.drafters.neural.early_exit.drafter import EarlyExitDrafter
from suffolk.serving.decoding.drafters.neural.early_exit.model import shallow
from suffolk.serving.decoding.drafters.neural.redrafter.config import RedrafterConfig
from suffolk.serving.decoding.drafters.neural.redrafter.drafter import RedrafterDrafter
from suffolk.serving.decoding.drafters.neural.redrafter.model import RedrafterHead
from suffolk.serving.decoding.drafters.retrieval.datastore import DatastoreDrafter
from suffolk.serving.decoding.drafters.retrieval.parallel_samples import ParallelSamplesDrafter
from suffolk.serving.decoding.drafters.retrieval.prediction import PredictionDrafter
from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.drafters.retrieval.token_recycling import TokenRecyclingDrafter
from suffolk.serving.decoding.drafters.retrieval.with_request_texts import WithRequestTexts
from suffolk.serving.decoding.engine.loop.draft_options import DraftOptions
from suffolk.serving.decoding.engine.loop.drafter import Drafter
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.step import Step
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.brute_force import BruteForceRetriever
from tests.support.drafters import Free, MadeUpDrafter, eager_decoder, eager_loop, lying, random_tree
from tests.support.hierarchies import DEPTHS, hierarchy
from tests.support.later import UnreliableLater
from tests.support.tiny_models import VOCAB, tiny_model

BATCHES = (1, 3, 8)
STACKS = ("retrieval alone", *(f"{depth} levels" for depth in DEPTHS))
NAMES = (
    "none",
    "datastore",
    "prompt-lookup",
    "prediction",
    "parallel-samples",
    "hybrid",
    "ahead",
    "random",
    "lying",
    "draft-model",
    "early-exit",
    "redrafter",
    "eagle",
    "token-recycling",
    "one tree",
    *STACKS,
)
SAMPLINGS = tuple(
    SamplingSettings(24, temperature, top_k, top_p, seed)
    for temperature in (0.0, 0.7, 1.0)
    for top_k, top_p in ((0, 1.0), (5, 1.0), (20, 0.9))
    for seed in (0, 1)
)
PER_TEMPERATURE = len(SAMPLINGS) // 3


@dataclass(frozen=True, slots=True)
class Case:
    """One request, and its output when decoded alone and without drafts."""

    prompt: tuple[int, ...]
    sampling: SamplingSettings
    expected: tuple[int, ...]


@cache
def target() -> Target:
    return Target.wrap(tiny_model("llama"))


@cache
def draft_model() -> Target:
    """The target with slightly different weights, which is often but not always correct."""
    model = tiny_model("llama")
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    return Target.wrap(model)


@cache
def redrafter() -> RedrafterHead:
    """A ReDrafter head with random weights, which is hardly ever right."""
    torch.manual_seed(2)
    return RedrafterHead(RedrafterConfig(VOCAB, 32, 64, output="target"), target()).eval()


@cache
def eagle() -> EagleHead:
    """An EAGLE head with random weights, which is hardly ever right."""
    torch.manual_seed(3)
    return new_head(target()).eval()


def make_cases(prompts: int, seed: int) -> list[Case]:
    """Make ``prompts`` random prompts, each at every temperature, with alternating cuts and seeds."""
    rng = np.random.default_rng(seed)
    cases = []
    for number in range(prompts):
        prompt = rng.integers(0, VOCAB if number % 3 else 12, int(rng.integers(1, 40))).tolist()
        for sampling in SAMPLINGS[number % PER_TEMPERATURE :: PER_TEMPERATURE]:
            alone = eager_decoder(target(), None).generate(prompt, sampling)
            list(alone)
            cases.append(Case(tuple(prompt), sampling, tuple(alone.tokens)))
    return cases


def make_networks() -> list[Drafter]:
    """Create one neural drafter of each kind."""
    return [
        DraftModelDrafter(draft_model(), VOCAB, 8, 160, costs=Free()),
        RedrafterDrafter(redrafter(), target(), costs=Free()),
        EagleDrafter(eagle(), 8, 160, costs=Free()),
        EarlyExitDrafter(shallow(target(), 1), costs=Free()),
        TokenRecyclingDrafter(ends=1024),
    ]


def make_drafters(cases: list[Case], seed: int) -> Mapping[str, Drafter]:
    """Create one drafter of each kind.

    The datastore holds some of the outputs, so that many drafts are accepted and many rejected.
    """
    rng = np.random.default_rng(seed)
    store = store_of(cases)
    later = DatastoreDrafter(UnreliableLater(_some(cases), VOCAB, rng), VOCAB, prefetch=True)
    return {
        "datastore": store,
        "prompt-lookup": WithRequestTexts(PromptLookupDrafter(VOCAB), [PredictionDrafter()]),
        "prediction": PredictionDrafter(),
        "parallel-samples": ParallelSamplesDrafter(VOCAB),
        "hybrid": HybridDrafter([PromptLookupDrafter(VOCAB), store, PredictionDrafter()]),
        "ahead": HybridDrafter([PromptLookupDrafter(VOCAB), later]),
        "random": MadeUpDrafter(lambda request: random_tree(rng, int(rng.integers(0, 20)), VOCAB)),
        "lying": lying(rng, VOCAB),
        **{network.name: network for network in make_networks()},
        "one tree": HybridDrafter([PromptLookupDrafter(VOCAB), ParallelSamplesDrafter(VOCAB), store], make_networks()),
        "retrieval alone": HierarchyDrafter([RetrievalLevel("datastore", [store_of(cases)], 4)], VOCAB),
        **{f"{depth} levels": hierarchy(depth, target(), draft_model()) for depth in DEPTHS},
    }


def store_of(cases: list[Case]) -> DatastoreDrafter:
    """A datastore that holds some of the outputs."""
    return DatastoreDrafter(BruteForceRetriever(_some(cases), VOCAB), VOCAB)


def _some(cases: list[Case]) -> list[list[int]]:
    return [[*case.prompt, *case.expected] for case in cases[::3]][:40]


def prediction(case: Case, rng: np.random.Generator) -> list[int] | None:
    """Return None or a predicted text: correct, partly correct, too long, wrong, one repeated token, or empty."""
    right, wrong = list(case.expected), rng.integers(0, VOCAB, 30).tolist()
    at = int(rng.integers(0, len(right) + 1))
    kinds = [
        None,
        right,
        right[at:],
        right[:at] + wrong[: at // 2] + right[at:],
        right + wrong,
        wrong,
        [right[0]] * 40,
        [],
    ]
    return kinds[int(rng.integers(len(kinds)))]


def run_together(cases: list[Case], slots: int, seed: int, turn: int, names: Sequence[str] = NAMES) -> Counter[str]:
    """Run ``cases`` in a loop of ``slots``, in random order with random arrivals and cancellations.

    Returns counts. Neighbouring requests have different drafters. Over ``turn`` 0 .. len(names) - 1, every case uses
    each of ``names`` once. Raises AssertionError at the first token that differs.
    """
    rng = np.random.default_rng(seed)
    loop = eager_loop(target(), make_drafters(cases, seed), slots, capacity=160)
    waiting = [
        Request(
            number,
            target(),
            case.prompt,
            case.sampling,
            "" if name == "none" else name,
            int(rng.integers(1, 40)),
            DraftOptions(prediction(case, rng)),
        )
        for number, case in enumerate(cases)
        for name in [names[(number + turn) % len(names)]]
    ]
    seen: Counter[str] = Counter()
    while waiting or loop.running:
        while waiting and loop.free and rng.random() < 0.7:
            loop.join(waiting.pop(int(rng.integers(len(waiting)))))
        if loop.running and rng.random() < 0.002:
            loop.leave(loop.running[int(rng.integers(len(loop.running)))])
            seen["cancelled"] += 1
        for request, answer in loop.step():
            case = cases[request.number]
            assert isinstance(answer, Step), answer
            generated = tuple(request.generated)
            assert generated == case.expected[: len(generated)], (case, request.drafter, slots, generated)
            if request.stats.finish:
                assert generated == case.expected, (case, request.drafter, slots, generated)
                seen["finished"] += 1
                seen["tokens"] += len(generated)
                seen[f"accepted {request.drafter or 'none'}"] += request.stats.accepted
                seen["failed"] += request.stats.draft_failures.total()
    return seen


def main() -> int:
    """Run as a command; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=200, help="random prompts (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)  # a tiny model gains nothing from more threads
    logging.disable(logging.WARNING)
    total: Counter[str] = Counter()
    for begin in range(0, args.prompts, 10):
        cases = make_cases(min(10, args.prompts - begin), args.seed + begin)
        for turn in range(len(NAMES)):
            for slots in BATCHES:
                total += run_together(cases, slots, args.seed + begin + slots, turn)
        done = min(begin + 10, args.prompts)
        print(
            f"{done} of {args.prompts} prompts, 3 temperatures, {len(NAMES)} drafters, batches {BATCHES}: {dict(total)}"
        )
        sys.stdout.flush()
    print(f"all {total['finished']} finished outputs equal decoding alone without drafts")
    return 0


if __name__ == "__main__":
    sys.exit(main())
