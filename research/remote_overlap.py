"""Compares drafts from a datastore over a network: waited for in every step, or prefetched during the target's pass."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from research.command import command_parser, run_command
from research.delayed_server import delayed_server
from suffolk.benchmarks.decode.measure import WARM_UP_TOKENS
from suffolk.benchmarks.decode.options import LIMITS, DecodingOptions
from suffolk.benchmarks.decode.setup import encode_prompts, load_target
from suffolk.benchmarks.parts import rotated
from suffolk.benchmarks.prompts import load_prompts
from suffolk.benchmarks.report import make_report, plain, write_report
from suffolk.benchmarks.service.load import served
from suffolk.build_index.progress import show_part
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.text_table import format_table
from suffolk.serving.clients.remote_datastore import connect
from suffolk.serving.decoding.drafters.load import make_drafter
from suffolk.serving.decoding.engine.costs.cost_store import find_costs
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.near_tie import first_difference

WAYS = ("none", "waiting", "ahead")
PACKAGES = ("numpy", "torch", "transformers", "grpcio")
NOTES = (
    "waiting: every step waits for the reply; ahead: as in service, drafts are prefetched during the target's pass if "
    "that gives more tokens a second",
    "wait: milliseconds per step; drafted: share of steps with drafts; prefetched: share of these steps with prefetched drafts",
    "methods alternate prompt by prompt; the delay is a sleep in the server, so it takes no processor time",
)
EXAMPLES = (
    "STORE --model MODEL --prompts prompts/coding.jsonl --limit 10 --json overlap.json",
    "STORE --model MODEL --prompts prompts/ --delays-ms 0 5 20 --drafter hybrid",
)


@dataclass(frozen=True, slots=True)
class RemoteOverlapOptions:
    """Settings of the measurement.

    Attributes:
        store: folder of the datastore to serve.
        decoding: model, prompts and settings.
        drafter: datastore or hybrid.
        delays_ms: milliseconds that the server adds to each call.
    """

    store: Path
    decoding: DecodingOptions
    drafter: str = "datastore"
    delays_ms: tuple[float, ...] = (0.0, 5.0, 20.0)
    deadline_ms: float = 100.0


def measure_remote_overlap(options: RemoteOverlapOptions) -> dict[str, Any]:
    """Measure all delays and methods. Raises the errors of ``load_prompts``, ``load_target``, ``served`` and ``connect``."""
    prompts = load_prompts(options.decoding.prompts, options.decoding.style, options.decoding.limit, 0)
    target = load_target(options.decoding)
    encoded, _ = encode_prompts(target, prompts, options.decoding)
    ids = [tokens for _, tokens in encoded]
    return {f"{delay:g} ms": _measure_delay(options, target, ids, delay) for delay in options.delays_ms}


def _measure_delay(
    options: RemoteOverlapOptions, target: Target, prompts: list[list[int]], delay: float
) -> dict[str, Any]:
    decoding = options.decoding
    settings = decoding.settings
    capacity = max(map(len, prompts)) + decoding.max_new_tokens + decoding.max_nodes
    costs = find_costs(target, 1, decoding.costs).costs
    outcomes: dict[str, list[tuple[list[int], dict[str, Any]]]] = {name: [] for name in WAYS}
    with (
        served(options.store, delayed_server(options.store, delay)) as url,
        contextlib.closing(connect(url, options.deadline_ms / 1e3)) as remote,
        contextlib.closing(
            connect(url, options.deadline_ms / 1e3)
        ) as other,  # the error of one does not affect the other
    ):
        drafters = {
            name: make_drafter(options.drafter, target.vocab_size, retriever, LIMITS, prefetch=prefetch)
            for name, retriever, prefetch in (("waiting", other, False), ("ahead", remote, None))
        }
        with Engine(target, drafters, costs, slots=1, capacity=capacity) as engine:  # closes the drafters
            list(
                engine.generate(
                    prompts[0], replace(settings, max_new_tokens=WARM_UP_TOKENS), WAYS[0], decoding.max_nodes
                )
            )
            for number, ids in enumerate(prompts):
                for name in rotated(WAYS, number):
                    generation = engine.generate(ids, settings, name, decoding.max_nodes)
                    list(generation)
                    outcomes[name].append((generation.tokens, generation.stats.to_dict()))
                show_part(f"{delay:g} ms: {number + 1} of {len(prompts)} prompts")
            counters = {name: drafter.stats() for name, drafter in drafters.items() if drafter is not None}
    texts = [tokens for tokens, _ in outcomes["none"]]
    rows = {}
    for name, runs in outcomes.items():
        differences = [
            first_difference(target, ids, text, tokens, settings)
            for ids, text, (tokens, _) in zip(prompts, texts, runs, strict=True)
        ]
        rows[name] = _summary([stats for _, stats in runs], counters.get(name, {})) | {
            "identical": sum(each is None for each in differences),
            "prompts": len(runs),
            "near_tie_gaps": [each.gap for each in differences if each is not None],
        }
    return rows


def _summary(runs: list[dict[str, Any]], counters: dict[str, float]) -> dict[str, Any]:
    total: Counter[str] = Counter()
    for stats in runs:
        total.update({key: stats[key] for key in ("steps", "draft_calls")})
        total.update(
            {"tokens": stats["tokens"] - 1, "seconds": stats["decode_seconds"], "wait": stats["seconds"]["wait"]}
        )
    steps, calls = max(1, total["steps"]), max(1, total["draft_calls"])
    return {
        "tokens_per_second": total["tokens"] / total["seconds"]
        if total["seconds"]
        else 0.0,  # outputs of one token have no rate
        "mean_generated_length": total["tokens"] / steps,
        "wait_ms_a_step": 1e3 * total["wait"] / steps,
        "drafted": total["draft_calls"] / steps,
        "prefetched": counters.get("prefetched", 0) / calls,
        "counters": counters,
    }


def lines(results: dict[str, Any]) -> list[str]:
    """Format a table of all delays and methods."""
    headers = (
        "delay, way",
        "tokens/s",
        "M",
        "wait ms/step",
        "drafted",
        "prefetched",
        "late",
        "failed",
        "identical",
    )
    rows = [
        (
            f"{delay}, {name}",
            row["tokens_per_second"],
            row["mean_generated_length"],
            row["wait_ms_a_step"],
            row["drafted"],
            row["prefetched"],
            row["counters"].get("late", 0),
            row["counters"].get("failed", 0),
            f"{row['identical']} of {row['prompts']}",
        )
        for delay, ways in results.items()
        for name, row in ways.items()
    ]
    return [format_table(headers, rows), *NOTES]


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(args: argparse.Namespace) -> int:
    """Measure, print and write the results; return the exit code."""
    if not all(0 <= delay <= 10_000 for delay in args.delays_ms):
        raise InvalidArgument(f"--delays-ms are {args.delays_ms}; each must be between 0 and 10000")
    decoding = DecodingOptions(
        model=args.model,
        prompts=tuple(args.prompts),
        limit=args.limit,
        max_new_tokens=args.max_new_tokens,
        temperature=args.temperature,
        dtype=args.dtype,
        style="chat",
    )
    options = RemoteOverlapOptions(args.store, decoding, args.drafter, tuple(args.delays_ms), args.deadline_ms)
    results = measure_remote_overlap(options)
    print("\n".join(lines(results)))
    if args.json is not None:
        write_report(make_report("remote overlap", 0, plain(options), results, NOTES, PACKAGES), args.json)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("remote_overlap", __doc__, *EXAMPLES)
    parser.add_argument("store", type=Path, help="folder of a datastore")
    parser.add_argument("--model", required=True, help="folder or hub name of the target")
    parser.add_argument("--prompts", type=Path, nargs="+", required=True, help=".jsonl files, or folders of them")
    parser.add_argument("--limit", type=int, help="prompts of each file")
    parser.add_argument(
        "--drafter",
        choices=("datastore", "hybrid"),
        default="datastore",
        help="drafter to measure (default: %(default)s)",
    )
    parser.add_argument("--delays-ms", type=float, nargs="+", default=[0.0, 5.0, 20.0], help="default: 0 5 20")
    parser.add_argument("--deadline-ms", type=float, default=100.0, help="deadline of a call (default: %(default)s)")
    parser.add_argument(
        "--max-new-tokens", type=int, default=128, metavar="N", help="longest answer (default: %(default)s)"
    )
    parser.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0: greedy (default: %(default)s)")
    parser.add_argument(
        "--dtype", default="float32", help="auto, float32, bfloat16, float16 or float64 (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, help="file for all numbers")
    return parser


if __name__ == "__main__":
    sys.exit(main())
