"""Names the prompt of an encrypted stream from the sizes of its packets, with and without batched streams.

The study asks a running worker for several sampled answers to each prompt and reads the tokens of every step from the stream.
``StepJoiner`` then turns these steps into packets for each interval, at a fixed time a step. Plain decoding gives the same text
one token a step, so its packets follow from the same answers. An observer learns the packets of all answers to each prompt
except one. For the remaining answers, it names the prompt by the nearest known sequence of sizes. Source: arXiv 2411.01076,
section 4.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from research.command import add_seed, command_parser, run_command
from suffolk.benchmarks.prompts import Prompt, load_prompts
from suffolk.benchmarks.report import commit, describe_machine
from suffolk.datastore.checks import check_range
from suffolk.datastore.errors import Internal, InvalidArgument, Unavailable
from suffolk.datastore.files import write_json
from suffolk.datastore.text_table import format_table
from suffolk.serving.decoding.engine.loop.step import Step
from suffolk.serving.worker.call import StepJoiner

_TIMEOUT = 600
"""Seconds without a byte."""
Steps = list[list[int]]
"""One answer: for each step, the bytes of text of each of its tokens."""
Packet = tuple[int, int]
"""Tokens and bytes of text. The framing of a packet has a constant size."""


@dataclass(frozen=True, slots=True)
class Stream:
    """The packets of one answer, and the mean seconds by which its tokens came later than they were generated."""

    packets: list[Packet]
    delay: float


def send(steps: Steps, interval: float, step_seconds: float) -> Stream:
    """The stream of an answer whose steps take ``step_seconds`` each, with at least ``interval`` seconds between packets."""
    now = 0.0
    joiner = StepJoiner(interval, lambda: now)
    packets, delays, waiting = [], [], []
    for number, sizes in enumerate(steps, 1):
        now = number * step_seconds
        waiting += [now] * len(sizes)
        finish = "length" if number == len(steps) else ""
        packet = joiner.add(Step(tuple(sizes), (0,) * len(sizes), (), finish))
        if packet is not None:
            packets.append((len(packet.tokens), sum(packet.tokens)))
            delays += [now - each for each in waiting]
            waiting = []
    return Stream(packets, sum(delays) / len(delays))


def one_by_one(steps: Steps) -> Steps:
    """The same answer by plain decoding."""
    return [[size] for step in steps for size in step]


def named(streams: Sequence[Sequence[Sequence[int]]]) -> float:
    """The share of answers whose prompt an observer names.

    Args:
        streams: for each prompt and each of its runs, the sizes of the packets.
    """
    longest = max(len(each) for runs in streams for each in runs)
    table = np.array([[np.pad(each, (0, longest - len(each))) for each in runs] for runs in streams], dtype=float)
    return float(np.mean([_named_run(table, run) for run in range(table.shape[1])]))


def _named_run(table: npt.NDArray[np.float64], run: int) -> float:
    """The share named in one run, with all others known. ``table``: sizes [prompts, runs, packets]."""
    known = np.delete(table, run, axis=1)
    distances = np.abs(known[None] - table[:, run][:, None, None]).sum(-1).min(-1)
    return float(np.mean(distances.argmin(-1) == np.arange(len(table))))


def _record(args: argparse.Namespace, prompts: Sequence[Prompt], temperature: float) -> list[list[Steps]]:
    """The steps of ``--runs`` answers to each prompt."""

    def ask(job: tuple[Prompt, int]) -> Steps:
        prompt, run = job
        body = {
            "messages": list(prompt.messages),
            "max_tokens": args.tokens,
            "temperature": temperature,
            "seed": args.seed + run,
            "logprobs": True,
            "stream": True,
        }
        connection = http.client.HTTPConnection(args.worker, timeout=_TIMEOUT)
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
            reply = connection.getresponse()
            if reply.status != http.client.OK:
                raise Internal(f"{args.worker} answered {reply.status}: {reply.read().decode()[:300]}")
            return [step for line in reply if (step := _step(line))]
        except OSError as error:
            raise Unavailable(f"{args.worker}: {error}; start 'suffolk worker --http {args.worker}'") from None
        finally:
            connection.close()

    jobs = [(prompt, run) for prompt in prompts for run in range(args.runs)]
    with ThreadPoolExecutor(args.streams) as pool:
        found = list(pool.map(ask, jobs))
    return [found[at : at + args.runs] for at in range(0, len(found), args.runs)]


def _step(line: bytes) -> list[int]:
    """The bytes of each token in a line of the stream; empty for lines without tokens."""
    content = line.removeprefix(b"data: ").strip()
    if not content or content == b"[DONE]":
        return []
    chunk = json.loads(content)
    if "error" in chunk:
        raise Internal(f"the stream ended with an error: {chunk['error']}")
    found = [choice["logprobs"] for choice in chunk["choices"] if choice["logprobs"]]
    return [len(entry["bytes"] or entry["token"].encode()) for each in found for entry in each["content"]]


def _row(
    answers: list[list[Steps]], change: Callable[[Steps], Steps], interval_ms: float, step_ms: float
) -> dict[str, Any]:
    streams = [[send(change(each), interval_ms / 1e3, step_ms / 1e3) for each in runs] for runs in answers]
    every = [each for runs in streams for each in runs]
    return {
        "packets": float(np.mean([len(each.packets) for each in every])),
        "delay_ms": 1e3 * float(np.mean([each.delay for each in every])),
        "named_by_tokens": named([[[tokens for tokens, _ in each.packets] for each in runs] for runs in streams]),
        "named_by_bytes": named([[[size for _, size in each.packets] for each in runs] for runs in streams]),
    }


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("stream_fingerprint", __doc__, "--worker 127.0.0.1:8000 --prompts prompts/ --json out.json")
    add = parser.add_argument
    add("--worker", required=True, metavar="HOST:PORT", help="HTTP address of a worker without --stream-interval")
    add("--prompts", required=True, nargs="+", type=Path, metavar="PATH", help=".jsonl files, or folders of them")
    add("--limit", type=int, default=30, metavar="N", help="prompts of each file (default: %(default)s)")
    add("--runs", type=int, default=6, metavar="N", help="answers to each prompt (default: %(default)s)")
    add("--tokens", type=int, default=48, metavar="N", help="of an answer (default: %(default)s)")
    add("--streams", type=int, default=8, metavar="N", help="requests at once (default: %(default)s)")
    add("--temperatures", type=float, nargs="+", default=[0.3, 1.0], metavar="T", help="default: 0.3 1")
    add("--intervals", type=float, nargs="+", default=[0, 50, 200, 500, 2000], metavar="MS",
        help="values of --stream-interval (default: 0 50 200 500 2000)")  # fmt: skip
    add("--step-ms", type=float, default=40.0, metavar="MS", help="time of a step (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="results and recorded steps")
    add_seed(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(args: argparse.Namespace) -> int:
    check_range("--runs", args.runs, 2, 1000)
    check_range("--streams", args.streams, 1, 1024)
    prompts = [each for each in load_prompts(args.prompts, "chat", args.limit, args.seed) if each.messages]
    if len(prompts) < 2:
        raise InvalidArgument(f"--prompts: {len(prompts)} prompts with 'messages'; an observer needs 2 to choose from")
    rows: list[dict[str, Any]] = []
    recorded: dict[str, list[list[Steps]]] = {}
    for temperature in args.temperatures:
        answers = recorded[str(temperature)] = _record(args, prompts, temperature)
        for drafts, change in (("worker's", list), ("none", one_by_one)):
            for interval in args.intervals:
                row = {"T": temperature, "drafts": drafts, "interval_ms": interval}
                rows.append(row | _row(answers, change, interval, args.step_ms))
    print(format_table(list(rows[0]), [[*each.values()] for each in rows]))
    print(f"by chance: {1 / len(prompts):.3f}")
    if args.json:
        facts = {"machine": describe_machine(), "commit": commit(), "command": sys.argv, "prompts": len(prompts)}
        write_json(args.json, facts | {"rows": rows, "steps": recorded})
    return 0


if __name__ == "__main__":
    sys.exit(main())
