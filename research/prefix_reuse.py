"""Counts the prompt tokens that are read with and without prefix reuse, and the processor time to the first token.

Three kinds of load: turns of a chat, questions after one system prompt, and samples of one prompt at once. The texts must agree."""

from __future__ import annotations

import argparse
import sys
import sysconfig
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import fmean

import torch

from research.command import command_parser, run_command
from suffolk.datastore.checks import check_range
from suffolk.datastore.settings import MAX_THREADS
from suffolk.datastore.text_table import format_table
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.slots import LEAST_REUSED
from suffolk.serving.decoding.engine.loop.step import Step
from suffolk.serving.decoding.engine.loop.step_loop import StepLoop
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings

_SLOTS = 8
_CASES = ("chat", "system prompt", "samples")


@dataclass(frozen=True, slots=True)
class Result:
    """One load: prompt tokens of its requests, how many of them were read, mean seconds to a first token, and the
    texts."""

    prompt_tokens: int
    read: int
    first_seconds: float
    texts: list[list[int]]


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("prefix_reuse", __doc__, "--model MODEL_FOLDER", "--model MODEL_FOLDER --prefix 1000")
    add = parser.add_argument
    add("--model", required=True, metavar="MODEL", help="folder or hub name")
    add("--prefix", type=int, default=300, metavar="N", help="tokens of the shared beginning (default: %(default)s)")
    add("--new", type=int, default=16, metavar="N", help="tokens of each answer (default: %(default)s)")
    add("--threads", type=int, default=1, metavar="N", help="CPU threads (default: %(default)s)")
    return parser


def measure(target: Target, text: Sequence[int], case: str, prefix: int, new: int, reuse: bool) -> Result:
    """Run the load ``case`` along ``text``, whose first ``prefix`` tokens are shared. Questions are the tokens after them."""
    loop = StepLoop(target, slots=_SLOTS, capacity=2 * prefix + 8 * (new + 32), prefix_reuse=reuse)
    numbers, found, seconds = count(1), list[Request](), list[float]()

    def run(prompts: Sequence[Sequence[int]], temperature: float = 0.0) -> None:
        requests = []
        for prompt in prompts:
            settings = SamplingSettings(new, temperature=temperature, seed=next(numbers), ignore_eos=True)
            requests.append(Request(settings.seed, target, list(prompt), settings))
        begin = time.process_time()
        for each in requests:
            loop.join(each)
        while loop.running:
            for request, step in loop.step():
                if not isinstance(step, Step):
                    raise step
                if request.stats.tokens == len(step.tokens):
                    seconds.append(time.process_time() - begin)
        found.extend(requests)

    questions = [list(text[prefix + 24 * at : prefix + 24 * (at + 1)]) for at in range(4)]
    shared = list(text[:prefix])
    if case == "samples":
        run([shared] * 8, temperature=0.8)
    for question in questions if case != "samples" else ():
        run([[*shared, *question]])
        if case == "chat":
            shared = [*shared, *question, *found[-1].generated]
    read = loop.stats.prompt_tokens
    return Result(sum(each.stats.prompt_tokens for each in found), read, fmean(seconds), [r.generated for r in found])


def _run(args: argparse.Namespace) -> int:
    check_range("--threads", args.threads, 1, MAX_THREADS)
    check_range("--prefix", args.prefix, LEAST_REUSED, 4096)
    check_range("--new", args.new, 1, 256)
    torch.set_num_threads(args.threads)
    target = Target.load(args.model, cache_tokens=_SLOTS * (2 * args.prefix + 8 * (args.new + 32)))
    source = Path(sysconfig.get_path("stdlib"), "argparse.py").read_text()
    text = target.tokenizer.encode(source[: 8 * (args.prefix + 200)])
    rows = []
    for case in _CASES:
        whole, reused = (measure(target, text, case, args.prefix, args.new, reuse) for reuse in (False, True))
        same = sum(one == other for one, other in zip(whole.texts, reused.texts, strict=True))
        rows.append([
            case, whole.prompt_tokens, whole.read, reused.read, f"{whole.first_seconds:.2f}",
            f"{reused.first_seconds:.2f}", f"{same}/{len(whole.texts)}",
        ])  # fmt: skip
    headers = ["load", "prompt tokens", "read", "read, reuse", "first token, s", "with reuse", "same text"]
    print(format_table(headers, rows))
    print("seconds: processor time from the arrival of a request to its first token, mean of requests")
    return 0


if __name__ == "__main__":
    sys.exit(main())
