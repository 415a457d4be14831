"""Counts drafted texts that equal plain ones: with each drafter, alone and 8 at once, with prompts read in chunks of 16 and 512.

Every node of every draft is verified, so that rows take all shapes that a pass may have. Results are printed as they come.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from research.command import add_seed, command_parser, run_command
from suffolk.benchmarks.decode.options import DecodingOptions
from suffolk.benchmarks.decode.setup import encode_prompts, load_target, make_drafters, opened_datastores
from suffolk.benchmarks.prompts import load_prompts
from suffolk.benchmarks.table import format_table
from suffolk.serving.drafters.registry import NONE
from suffolk.serving.engine.loop import prefill_pace
from suffolk.serving.engine.loop.drafter import Drafter
from suffolk.serving.engine.loop.request import Request
from suffolk.serving.engine.loop.step_loop import StepLoop
from suffolk.serving.engine.loop.verify_all_planner import VerifyAllPlanner
from suffolk.serving.engine.model.target import Target
from suffolk.serving.engine.sampling.near_tie import first_difference
from suffolk.serving.engine.sampling.settings import SamplingSettings
from suffolk.serving.transport.limits import check_range

EXAMPLES = ("--model MODEL --dtype bfloat16 --prompts prompts/ --datastore STORE --limit 3",)
BATCHES, CHUNKS = (1, 8), (16, 512)
Texts = list[list[int]]


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(args: argparse.Namespace) -> int:
    check_range("--prompt-tokens", args.prompt_tokens, 1, 4096)
    options = DecodingOptions(
        args.model, tuple(args.prompts), tuple(args.datastore), drafters=tuple(args.drafters), style="chat",
        max_new_tokens=args.max_new_tokens, dtype=args.dtype, seed=args.seed,
    )  # fmt: skip
    found = load_prompts(args.prompts, options.style, args.limit, args.seed)
    target = load_target(options)
    prompts = [ids[-args.prompt_tokens :] for _, ids in encode_prompts(target, found, options)[0]]
    same: Counter[str] = Counter()
    compared = 0
    with opened_datastores(options) as retrievers:
        for temperature in args.temperature:
            settings = replace(options.settings, temperature=temperature)
            plain = decode(target, {}, NONE, prompts, settings, 1, 512)
            for drafter, slots, chunk in [(d, s, c) for d in options.drafters for s in BATCHES for c in CHUNKS]:
                drafters = make_drafters(options, target, retrievers, slots, args.prompt_tokens + 1024)
                texts = decode(target, drafters, drafter, prompts, settings, slots, chunk)
                pairs = list(zip(prompts, plain, texts, strict=True))
                gaps = [tie.gap for each in pairs if (tie := first_difference(target, *each, settings)) is not None]
                same[drafter] += len(texts) - len(gaps)
                compared += len(texts)
                way = f"{drafter}, temperature {temperature:g}, {slots} at once, chunks of {chunk}"
                print(f"{way}: {len(texts) - len(gaps)} of {len(texts)} equal; gaps {gaps}", flush=True)
    rows = [[name, str(count), str(compared // len(options.drafters))] for name, count in same.items()]
    print(format_table(["drafter", "equal texts", "texts"], rows), flush=True)
    return 0 if same.total() == compared else 1


def decode(
    target: Target,
    drafters: dict[str, Drafter],
    drafter: str,
    prompts: Texts,
    settings: SamplingSettings,
    slots: int,
    chunk: int,
) -> Texts:
    """The answers, decoded ``slots`` at once; a prompt is read ``chunk`` tokens at a time."""
    prefill_pace.PREFILL_CHUNK = prefill_pace.LEAST_TOKENS = chunk  # type: ignore[attr-defined]  # of its own
    capacity = max(map(len, prompts)) + settings.max_new_tokens + 80
    loop = StepLoop(target, drafters, VerifyAllPlanner(), slots, capacity)
    name = "" if drafter == NONE else drafter
    requests = [Request(number, target, ids, settings, name, 24) for number, ids in enumerate(prompts)]
    waiting = list(reversed(requests))
    while waiting or loop.running:
        while waiting and loop.free:
            loop.join(waiting.pop())
        for _, answer in loop.step():
            if isinstance(answer, Exception):
                raise answer
    return [request.generated for request in requests]


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("same_texts", __doc__, *EXAMPLES)
    add = parser.add_argument
    add("--model", required=True, help="model folder in the Hugging Face layout, or hub name")
    add("--prompts", required=True, nargs="+", type=Path, metavar="PATH", help=".jsonl files or folders")
    add("--datastore", nargs="*", default=[], metavar="STORE", help="folders of datastores")
    add(
        "--drafters",
        nargs="+",
        default=["prompt-lookup", "datastore", "hybrid"],
        metavar="NAME",
        help="names of drafters (default: three)",
    )
    add("--limit", type=int, metavar="N", help="prompts of each file (default: all)")
    add("--prompt-tokens", type=int, default=160, metavar="N", help="last tokens of a prompt (default: %(default)s)")
    add("--max-new-tokens", type=int, default=24, metavar="N", help="longest answer (default: %(default)s)")
    add("--temperature", type=float, nargs="+", default=[0.0, 0.8], metavar="T", help="default: 0 and 0.8")
    add("--dtype", default="bfloat16", help="auto, float32, bfloat16 or float16 (default: %(default)s)")
    add_seed(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
