"""Decodes recorded answers on a simulated device, plainly and with drafters. Times come from a cost table."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

from research.command import add_seed, command_parser, run_command
from research.simulated_device.comparison import NAMES, Case, compare, read_answers
from research.simulated_device.device import Disturbances, DraftTimes
from research.simulated_device.simulation import Load
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.text_table import format_table
from suffolk.serving.decoding.engine.costs.cost_store import read_costs

_HEADERS = (
    "drafter", "tokens/s", "speed-up", "M", "nodes", "of best fixed", "best nodes", "of ceiling",
    "first p50", "first p99", "next p50", "next p99",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "simulated_device",
        __doc__,
        "answers.jsonl --costs h200-7b.json --datastore STORE",
        "answers.jsonl --costs h200-7b.json --drafters prompt-lookup --slots 32 --rate 100",
        "answers.jsonl --costs cpu.json --datastore STORE --unsteady 0.3 --rows-believed 2 --first-draft-ms 200",
    )
    add = parser.add_argument
    add("answers", type=Path, metavar="ANSWERS", help="recorded by research.record_answers")
    add(
        "--costs",
        type=Path,
        required=True,
        metavar="FILE",
        help="cost table of the device, as 'suffolk profile' stores it",
    )
    add("--datastore", metavar="STORE", help="folder, for the drafters that read one")
    add(
        "--drafters",
        nargs="+",
        choices=NAMES,
        metavar="NAME",
        help=f"of {', '.join(NAMES)} (default: all that can run)",
    )
    add("--limit", type=int, metavar="N", help="answers, of all groups in turn (default: all)")
    add("--slots", type=int, default=1, metavar="N", help="requests that are decoded at once (default: %(default)s)")
    add("--rate", type=float, default=0.0, metavar="R", help="requests a second; 0: all at once (default: %(default)g)")
    add(
        "--lookup-ms",
        type=float,
        default=0.15,
        metavar="MS",
        help="prompt lookup, for a request (default: %(default)g)",
    )
    add("--draft-ms", type=float, default=0.5, metavar="MS", help="datastore, for a request (default: %(default)g)")
    add("--first-draft-ms", type=float, default=0.0, metavar="MS", help="added to the first draft of the datastore")
    add("--host-ms", type=float, default=0.0, metavar="MS", help="host time of each step beside pass and drafts")
    add(
        "--rows-believed",
        type=float,
        default=1.0,
        metavar="F",
        help="factor by which the measured cost of rows is wrong",
    )
    add("--jitter", type=float, default=0.0, metavar="S", help="standard deviation of the logarithm of pass times")
    add("--outliers", type=float, default=0.0, metavar="P", help="share of passes that take 3 to 30 times as long")
    add(
        "--unsteady", type=float, default=0.0, metavar="S", help="the speed changes by up to this share every 3 seconds"
    )
    add("--slow-from", type=float, default=0.0, metavar="T", help="second from which everything takes twice as long")
    add("--slow-to", type=float, default=0.0, metavar="T", help="second until which it does")
    add("--useless-after", type=int, metavar="N", help="the datastore's drafts are wrong after N tokens of a text")
    add_seed(parser)
    return parser


def _run(args: argparse.Namespace) -> int:
    if not 1 <= args.slots <= 64:
        raise InvalidArgument(f"--slots is {args.slots}; it must be between 1 and 64")
    costs, _ = read_costs(args.costs)
    answers = read_answers(args.answers, args.limit, 2)
    names = args.drafters or [name for name in NAMES if args.datastore or name == "prompt-lookup"]
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(open_datastore(args.datastore)) if args.datastore else None
        case = Case(
            answers,
            costs,
            store,
            Load(args.slots, args.rate, host_seconds=args.host_ms / 1e3),
            {
                "prompt-lookup": DraftTimes(0.0, args.lookup_ms / 1e3),
                "datastore": DraftTimes(0.0, args.draft_ms / 1e3, args.first_draft_ms / 1e3),
            },
            Disturbances(args.jitter, args.outliers, args.unsteady, args.slow_from, args.slow_to),
            rows_believed=args.rows_believed,
            useless_after=args.useless_after,
            seed=args.seed,
        )
        rows = []
        for each in compare(case, names):
            result = each.result
            rows.append([
                each.name, f"{result.throughput:.1f}", f"{each.speed_up:.3f}", f"{result.mean_length:.2f}",
                f"{result.nodes_per_step:.1f}", f"{each.of_best_fixed:.3f}", each.best_nodes, f"{each.of_ceiling:.3f}",
                *(f"{1e3 * value:.1f}" for value in result.first_token_seconds(0.5, 0.99)),
                *(f"{1e3 * value:.2f}" for value in result.token_seconds(0.5, 0.99)),
            ])  # fmt: skip
        print(format_table(list(_HEADERS), rows))
        print("first, next: milliseconds to the first token, and between tokens")
    return 0


if __name__ == "__main__":
    sys.exit(main())
