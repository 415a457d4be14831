"""Counts drafted texts that equal plain ones: with each drafter, alone and 8 at once, with prompts read in chunks of 16 and 512.

Every node of every draft is verified, so that rows take all shapes that a pass may have. Drafted requests take over the rows of
equal prompts; plain ones run alone and read all. Drafter ``prediction`` gets the plain text with errors. Results are printed as
they come.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from research.command import add_drafter_options, add_seed, command_parser, read_drafter_config, run_command
from suffolk.benchmarks.decode.options import DecodingOptions
from suffolk.benchmarks.decode.setup import encode_prompts, load_target, make_drafters, opened_datastores
from suffolk.benchmarks.prompts import load_prompts
from suffolk.datastore.checks import check_range
from suffolk.datastore.text_table import format_table
from suffolk.serving.decoding.drafters.registry import NONE
from suffolk.serving.decoding.engine.loop import prefill_pace
from suffolk.serving.decoding.engine.loop.draft_options import DEFAULT_OPTIONS, DraftOptions
from suffolk.serving.decoding.engine.loop.drafter import Drafter
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.step_loop import StepLoop
from suffolk.serving.decoding.engine.loop.verify_all_planner import VerifyAllPlanner
from suffolk.serving.decoding.engine.model.same_bits import EXACT
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.near_tie import first_difference
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings

EXAMPLES = (
    "--model MODEL --dtype bfloat16 --prompts prompts/ --datastore STORE --limit 3",
    "--model MODEL --prompts prompts/ --draft-model SMALL --drafters draft-model parallel-samples --samples 2",
)
BATCHES, CHUNKS = (1, 8), (16, 512)
NODES = 24
WRONG = 7
"""Every seventh token of a prediction is wrong."""
Texts = list[list[int]]


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(args: argparse.Namespace) -> int:
    check_range("--prompt-tokens", args.prompt_tokens, 1, 4096)
    check_range("--samples", args.samples, 1, 64)
    options = DecodingOptions(
        model=args.model, prompts=tuple(args.prompts), datastores=tuple(args.datastore),
        models=read_drafter_config(args), drafters=tuple(args.drafters),
        style="chat", max_new_tokens=args.max_new_tokens, dtype=args.dtype, exact=args.exact, threads=args.threads,
        seed=args.seed,
    )  # fmt: skip
    found = load_prompts(args.prompts, options.style, args.limit, args.seed)
    target = load_target(options)
    encoded = encode_prompts(target, found, options)[0]
    prompts = [ids[-args.prompt_tokens :] for _, ids in encoded for _ in range(args.samples)]
    same: Counter[str] = Counter()
    compared = 0
    with opened_datastores(options) as retrievers:
        for temperature in args.temperature:
            settings = [
                replace(options.settings, temperature=temperature, seed=args.seed + number % args.samples)
                for number in range(len(prompts))
            ]
            plain = decode(target, {}, NONE, prompts, settings, 1, 512)
            options_of = [DraftOptions(prediction=with_errors(text)) for text in plain]
            for slots in BATCHES:
                drafters = make_drafters(options, target, retrievers, slots, args.prompt_tokens + 1024)
                for drafter, chunk in [(drafter, chunk) for drafter in options.drafters for chunk in CHUNKS]:
                    given = options_of if drafter == "prediction" else [DEFAULT_OPTIONS] * len(prompts)
                    texts = decode(target, drafters, drafter, prompts, settings, slots, chunk, given)
                    runs = list(zip(prompts, plain, texts, settings, strict=True))
                    gaps = [tie.gap for each in runs if (tie := first_difference(target, *each)) is not None]
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
    settings: Sequence[SamplingSettings],
    slots: int,
    chunk: int,
    options: Sequence[DraftOptions] | None = None,
) -> Texts:
    """The answers, decoded ``slots`` at once; a prompt is read ``chunk`` tokens at a time.

    With ``options``, requests are drafted and reuse prefixes.
    """
    prefill_pace.PREFILL_CHUNK = prefill_pace.LEAST_TOKENS = chunk  # type: ignore[attr-defined]  # of its own
    capacity = max(map(len, prompts)) + settings[0].max_new_tokens + 80
    loop = StepLoop(target, drafters, VerifyAllPlanner(), slots, capacity, prefix_reuse=options is not None)
    name = "" if drafter == NONE else drafter
    each = zip(prompts, settings, options or [DEFAULT_OPTIONS] * len(prompts), strict=True)
    requests = [Request(number, target, ids, law, name, NODES, given) for number, (ids, law, given) in enumerate(each)]
    waiting = list(reversed(requests))
    while waiting or loop.running:
        while waiting and loop.free:
            loop.join(waiting.pop())
        for _, answer in loop.step():
            if isinstance(answer, Exception):
                raise answer
    return [request.generated for request in requests]


def with_errors(text: list[int]) -> list[int]:
    """``text`` with wrong tokens."""
    return [token ^ 1 if place % WRONG == WRONG - 1 else token for place, token in enumerate(text)]


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("same_texts", __doc__, *EXAMPLES)
    add = parser.add_argument
    add("--model", required=True, help="model folder in the Hugging Face layout, or hub name")
    add("--prompts", required=True, nargs="+", type=Path, metavar="PATH", help=".jsonl files or folders")
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
    add("--samples", type=int, default=1, metavar="N", help="answers to each prompt (default: %(default)s)")
    add("--dtype", default="bfloat16", help="auto, float32, bfloat16 or float16 (default: %(default)s)")
    add("--exact", choices=EXACT, default="bits", help="as of Target.load (default: %(default)s)")
    add("--threads", type=int, metavar="N", help="CPU threads (default: torch's choice)")
    add_drafter_options(parser)
    add_seed(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
