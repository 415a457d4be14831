"""Compares drafts with and without prefetching, from a delayed service, along recorded answers.

A target pass is a sleep.

Four methods alternate, answer by answer. ``none`` never drafts. ``wait`` waits for every reply. ``prefetch`` drafts as
in service. ``skip`` drafts as in service, but without prefetching. Sleeps take no processor time, so a busy machine
changes little.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from research.command import command_parser, run_command
from research.delayed_server import delayed_server
from suffolk.benchmarks.service.load import served
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.text_table import format_table
from suffolk.serving.clients.remote_datastore import connect
from suffolk.serving.decoding.drafters.load import make_drafter
from suffolk.serving.decoding.engine.costs.draft_budget import DraftBudget
from suffolk.serving.decoding.engine.loop.drafter import Drafter, DraftRequest, PrefetchingDrafter, tree_of
from suffolk.serving.decoding.replay.read import read_recordings
from suffolk.serving.decoding.replay.recording import Recording

WAYS = ("none", "wait", "prefetch", "skip")
NODES = 16
ROW_SHARE = 0.02
"""Cost of one more row, as a share of a pass."""


def decode(drafter: Drafter | None, answer: Recording, number: int, seconds: float, prefetches: bool) -> int:
    """Decode along ``answer`` with passes of ``seconds``; return the number of passes."""
    done, passes = 1, 0
    while done < len(answer.generated):
        tokens = np.concatenate([answer.prompt, answer.generated[:done]])
        budget = DraftBudget(token_seconds=seconds, row_seconds=ROW_SHARE * seconds)
        request = DraftRequest(number, tokens, NODES, len(answer.prompt), answer.settings, budget=budget)
        tree = DraftTree.empty()
        if drafter is not None:
            tree = tree_of(drafter.propose([request])[0])
            if prefetches and isinstance(drafter, PrefetchingDrafter):
                drafter.prefetch([request], [tree])
        time.sleep(seconds * (1 + ROW_SHARE * len(tree)))
        accepted, node = 0, -1
        while done + accepted < len(answer.generated) - 1:
            token = answer.generated[done + accepted]
            children = np.flatnonzero((tree.parents == node) & (tree.tokens == token))
            if not len(children):
                break
            node, accepted = int(children[0]), accepted + 1
        if drafter is not None:
            drafter.observe({number: answer.generated[done : done + accepted + 1]})
        done, passes = done + accepted + 1, passes + 1
    if drafter is not None:
        drafter.release(number)
    return passes


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(args: argparse.Namespace) -> int:
    answers = [each for each in read_recordings([args.recording]) if len(each.generated) > 1][: args.limit]
    deadline = None if args.deadline_ms is None else args.deadline_ms / 1e3
    rows = []
    for delay in args.delays_ms:
        for milliseconds in args.pass_ms:
            with contextlib.ExitStack() as stack:
                url = stack.enter_context(served(args.store, delayed_server(args.store, delay)))
                stores = [stack.enter_context(contextlib.closing(connect(url, deadline))) for _ in WAYS[1:]]
                drafters: list[Drafter | None] = [None]
                for store, prefetch in zip(stores, (False, None, None), strict=True):
                    drafters.append(make_drafter(args.drafter, answers[0].vocab_size, store, prefetch=prefetch))
                seconds, passes = [0.0] * len(WAYS), [0] * len(WAYS)
                for number, answer in enumerate(answers, 1):
                    for turn in range(len(WAYS)):
                        way = (number + turn) % len(WAYS)
                        begin = time.perf_counter()
                        passes[way] += decode(
                            drafters[way], answer, number, milliseconds / 1e3, way != WAYS.index("skip")
                        )
                        seconds[way] += time.perf_counter() - begin
            tokens = sum(len(each.generated) - 1 for each in answers)
            rates = [tokens / each for each in seconds]
            best = max(rate for way, rate in zip(WAYS, rates, strict=True) if way != "prefetch")
            lengths = [tokens / each for each in passes]
            rows.append((f"{delay:g} ms, pass {milliseconds:g} ms", *rates, lengths[2], rates[2] / best))
    headers = ("delay", *(f"{way}, tokens/s" for way in WAYS), "M, prefetch", "prefetch / best of the others")
    print(format_table(headers, rows))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "prefetching", __doc__, "STORE answers.jsonl --drafter hybrid --delays-ms 20 --pass-ms 30 60"
    )
    parser.add_argument("store", type=Path, help="folder of a datastore")
    parser.add_argument("recording", type=Path, help="answers from research.record_answers")
    parser.add_argument("--drafter", choices=("datastore", "hybrid"), default="hybrid", help="default: %(default)s")
    parser.add_argument("--limit", type=int, default=10, help="number of answers to use (default: %(default)s)")
    parser.add_argument("--delays-ms", type=float, nargs="+", default=[5.0, 20.0], help="default: 5 20")
    parser.add_argument("--deadline-ms", type=float, help="deadline of a call (default: that of a worker)")
    parser.add_argument("--pass-ms", type=float, nargs="+", default=[30.0, 60.0], help="default: 30 60")
    return parser


if __name__ == "__main__":
    sys.exit(main())
