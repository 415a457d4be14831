"""Measures acceptance of drafts regardless of cost: every step drafts, and every node is verified.

All drafters use trees of the same size. Prints the mean generated length M (tokens per pass), and the share of drafts
that are correct up to each depth. In service the engine drafts less often and verifies fewer nodes; measure that with
'suffolk bench decode'.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from research.command import add_drafter_options, add_seed, command_parser, read_drafter_config, run_command
from suffolk.benchmarks.decode.options import DecodingOptions
from suffolk.benchmarks.decode.setup import (
    encode_prompts,
    load_target,
    make_drafters,
    opened_datastores,
    require_drafters,
)
from suffolk.benchmarks.prompts import STYLES, Prompt, load_prompts
from suffolk.benchmarks.report import commit, describe_machine
from suffolk.datastore.errors import SuffolkError
from suffolk.datastore.files import write_json
from suffolk.datastore.text_table import format_table
from suffolk.serving.decoding.engine.loop.drafter import Drafter
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.step_loop import StepLoop
from suffolk.serving.decoding.engine.loop.verify_all_planner import VerifyAllPlanner
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.decoding.replay.replayer import SPARE
from suffolk.serving.decoding.replay.summary import DEPTHS, summarize


def measure_acceptance(
    target: Target,
    drafters: dict[str, Drafter],
    prompts: Sequence[tuple[Prompt, list[int]]],
    settings: SamplingSettings,
    nodes: int,
    capacity: int,
    batch: int = 1,
) -> dict[str, Any]:
    """Return M, nodes a pass, the share of drafts correct to each depth, and output equality, for each drafter.

    ``batch``: requests at once. M depends on it only where a model's texts do.
    """
    found: dict[str, Any] = {}
    texts: dict[str, list[list[int]]] = {}
    for name in ("", *drafters):
        loop = StepLoop(target, drafters, VerifyAllPlanner(), batch, capacity)
        requests = [Request(number, target, ids, settings, name, nodes) for number, (_, ids) in enumerate(prompts, 1)]
        for begin in range(0, len(requests), batch):
            for request in requests[begin : begin + batch]:
                loop.join(request)
            while loop.running:
                for _, answer in loop.step():
                    if isinstance(answer, SuffolkError):
                        raise answer
        texts[name] = [request.generated for request in requests]
        if name:
            found[name] = summarize([request.stats for request in requests]) | {"identical": texts[name] == texts[""]}
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(args: argparse.Namespace) -> int:
    models = read_drafter_config(args)
    found = (*(("datastore",) if args.datastore else ()), *models.parts())
    names = ("prompt-lookup", *found, *(("hybrid",) if found else ()))
    stores = (args.datastore,) if args.datastore else ()
    options = DecodingOptions(
        model=args.model, prompts=tuple(args.prompts), datastores=stores, models=models, drafters=names, style=args.style,
        limit=args.limit,
        max_new_tokens=args.max_new_tokens, dtype=args.dtype, seed=args.seed,
    )  # fmt: skip
    settings = SamplingSettings(args.max_new_tokens, args.temperature, seed=args.seed)
    results: dict[str, Any] = {"machine": describe_machine(), "commit": commit(), "command": sys.argv}
    with opened_datastores(options) as retrievers:
        require_drafters(options, retrievers)
        target = load_target(options)
        prompts, _ = encode_prompts(target, load_prompts(args.prompts, args.style, args.limit, args.seed), options)
        capacity = max(len(ids) for _, ids in prompts) + args.max_new_tokens + max(args.nodes) + SPARE
        for nodes in args.nodes:
            drafters = make_drafters(options, target, retrievers, args.batch, capacity)
            results[str(nodes)] = measure_acceptance(target, drafters, prompts, settings, nodes, capacity, args.batch)
    rows = [
        [
            name,
            nodes,
            each["mean_generated_length"],
            each["nodes_per_pass"],
            *each["acceptance_by_depth"],
            each["identical"],
        ]
        for nodes in args.nodes
        for name, each in results[str(nodes)].items()
    ]
    depths = [f"right to {depth}" for depth in range(1, DEPTHS + 1)]
    print(format_table(["drafter", "nodes", "M", "nodes a pass", *depths, "as plain"], rows))
    if args.json:
        write_json(args.json, results)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "acceptance", __doc__, "--model MODEL --head HEAD --prompts chat.jsonl --limit 10 --nodes 16"
    )
    parser.add_argument("--model", required=True, help="model folder in the Hugging Face layout, or hub name")
    parser.add_argument(
        "--prompts", required=True, nargs="+", type=Path, metavar="PATH", help=".jsonl files or folders"
    )
    parser.add_argument("--datastore", metavar="STORE", help="folder of a datastore")
    add_drafter_options(parser, without=["datastore", "token-recycling"])
    parser.add_argument(
        "--style", choices=STYLES, default="chat", help="for rows with a prefill (default: %(default)s)"
    )
    parser.add_argument("--limit", type=int, metavar="N", help="prompts of each file (default: all)")
    parser.add_argument(
        "--max-new-tokens", type=int, default=128, metavar="N", help="longest answer (default: %(default)s)"
    )
    parser.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0: greedy (default: %(default)s)")
    parser.add_argument("--nodes", type=int, nargs="+", default=[16], metavar="N", help="nodes of a draft, at most")
    parser.add_argument("--batch", type=int, default=1, metavar="N", help="requests at once (default: %(default)s)")
    parser.add_argument(
        "--dtype", default="auto", help="auto, float32, bfloat16, float16 or float64 (default: as stored)"
    )
    add_seed(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results there")
    return parser


if __name__ == "__main__":
    sys.exit(main())
