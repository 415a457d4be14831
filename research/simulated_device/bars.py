"""Checks what the drafting policy must hold, on simulated devices from 1 to 250 ms a token. Exit code 1 if a bar is missed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, cycle, islice
from pathlib import Path

from research.command import add_seed, command_parser, run_command
from research.simulated_device.comparison import NAMES, WITH_MODEL, Case, compare, read_answers
from research.simulated_device.device import Disturbances, DraftTimes, costs_like
from research.simulated_device.simulation import Load, Result
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.text_table import format_table
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.cost_store import read_costs

ROWS = (1, 2, 4, 8, 16, 32, 64)
GPU = CostModel(ROWS, (7.05, 7.21, 7.3, 7.45, 7.84, 8.0, 8.27))
CPU = CostModel(ROWS, (57.0, 94.0, 95.0, 96.0, 98.0, 151.0, 222.0))
"""Milliseconds of passes of a 7B model on an H200, and of a 135M model in fp32 on two cores."""
SPEEDS = {1: GPU, 3: GPU, 7: GPU, 55: CPU, 250: CPU}
"""Milliseconds of a plain token, and the form of the costs."""
WARM_UP = 30
"""Steps after which a datastore that holds the answers must be used."""
_WINDOW = 10


@dataclass(frozen=True, slots=True)
class Checked:
    """One measured bar; ``value`` must be at least ``bar``."""

    name: str
    value: float
    bar: float

    @property
    def holds(self) -> bool:
        return self.value >= self.bar


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def tables(case: Case, name: str) -> Iterator[Checked]:
    """Each drafter against its best fixed tree size, and the hybrid against its best part."""
    found = {each.name: each for each in compare(case, NAMES)}
    for drafter, each in found.items():
        yield Checked(f"{name}: {drafter} of the best fixed size", each.of_best_fixed, 0.95)
    best = max(1.0, found["prompt-lookup"].speed_up, found["datastore"].speed_up)
    yield Checked(f"{name}: hybrid of its best part", found["hybrid"].speed_up / best, 0.98)


def holding(case: Case, speeds: Sequence[int] = tuple(SPEEDS)) -> Iterator[Checked]:
    """A datastore that holds the answers: M in the last steps of the first 30, whatever was measured wrong."""
    cold = {"datastore": replace(case.times["datastore"], first=0.2)}
    busy = Disturbances(jitter=0.3, outliers=0.1, unsteady=0.5)
    for milliseconds, costs in ((each, SPEEDS[each]) for each in speeds):
        quiet = replace(case, costs=costs_like(costs, milliseconds / 1e3))
        for name, each in {
            "": quiet,
            ", first draft of 200 ms": replace(quiet, times=cold),
            ", rows believed twice as dear": replace(quiet, rows_believed=2.0),
            ", rows believed half as dear": replace(quiet, rows_believed=0.5),
            ", busy": replace(quiet, disturbances=busy),
        }.items():
            yield Checked(f"{milliseconds} ms: answers known{name}, M", early_length(each.run("datastore")), 5.0)


def losing(case: Case, speeds: Sequence[int] = tuple(SPEEDS)) -> Iterator[Checked]:
    """Useless, slow and dying sources against plain decoding. ``case``: a datastore that holds the answers."""
    slow = {"datastore": DraftTimes(0.02)}
    for milliseconds, costs in ((each, SPEEDS[each]) for each in speeds):
        known = replace(case, costs=costs_like(costs, milliseconds / 1e3))
        plain = known.run(None).rate
        for name, each in {
            "useless": replace(known, useless_after=0),
            "slow and useless": replace(known, useless_after=0, times=slow),
            "dying": replace(known, useless_after=40),
        }.items():
            yield Checked(f"{milliseconds} ms: {name} of plain", each.run("datastore").rate / plain, 0.98)


def unsteady(case: Case, speeds: Sequence[int] = tuple(SPEEDS)) -> Iterator[Checked]:
    """A device that changes its speed by 30 % every 3 seconds, against the same decisions without noise."""
    for milliseconds, costs in ((each, SPEEDS[each]) for each in speeds):
        quiet = replace(case, costs=costs_like(costs, milliseconds / 1e3))
        noisy = replace(quiet, disturbances=Disturbances(unsteady=0.3))
        share = noisy.run("hybrid").undisturbed_rate / quiet.run("hybrid").rate
        yield Checked(f"{milliseconds} ms: unsteady of steady", share, 0.98)


def starved(case: Case, speeds: Sequence[int] = (7, 55)) -> Iterator[Checked]:
    """A device whose time others take: its speed changes by a factor of 4 every 3 seconds, and a pass in ten is far slower."""
    for milliseconds, costs in ((each, SPEEDS[each]) for each in speeds):
        quiet = replace(case, costs=costs_like(costs, milliseconds / 1e3))
        noisy = replace(quiet, disturbances=Disturbances(jitter=0.2, outliers=0.1, unsteady=3.0))
        share = noisy.run("hybrid").undisturbed_rate / quiet.run("hybrid").rate
        yield Checked(f"{milliseconds} ms: starved of quiet", share, 0.95)


def models(case: Case, speeds: Sequence[int] = (7, 55)) -> Iterator[Checked]:
    """A hybrid with a draft model: a good one against the best part, a useless one against the hybrid without it."""
    for milliseconds, costs in ((each, SPEEDS[each]) for each in speeds):
        good = replace(case, costs=costs_like(costs, milliseconds / 1e3))
        hybrid = good.run("hybrid").rate
        best = max(hybrid, good.run("draft-model").rate)
        yield Checked(f"{milliseconds} ms: with a draft model of the best part", good.run(WITH_MODEL).rate / best, 0.98)
        useless = replace(good, model_right=0.0)
        share = useless.run(WITH_MODEL).rate / hybrid
        yield Checked(f"{milliseconds} ms: with a useless draft model of the hybrid", share, 0.98)


def batches(case: Case, slots: Sequence[int] = (8, 32, 64)) -> Iterator[Checked]:
    """Many requests at once against plain decoding. The answers are repeated, so that the slots are full most of the time."""
    for milliseconds, costs in {7: GPU, 55: CPU}.items():
        for number in slots:
            answers = list(islice(cycle(case.answers), 3 * number))
            full = replace(case, answers=answers, costs=costs_like(costs, milliseconds / 1e3), load=Load(number))
            plain = full.run(None)
            for name in NAMES:
                share = full.run(name).rate / plain.rate
                yield Checked(f"{milliseconds} ms, {number} at once: {name} of plain", share, 0.98)


def prompts(case: Case, slots: Sequence[int] = (8, 32, 64)) -> Iterator[Checked]:
    """A 7B model on a GPU while all slots are taken: prompts are read in the passes in which other requests decode."""
    costs = costs_like(GPU, 0.007)
    for number in slots:
        answers = list(islice(cycle(case.answers), 4 * number))
        full = replace(case, answers=answers, costs=costs, load=Load(number))
        plain = full.run(None)
        rate, seconds = plain.full_throughput(number), costs.time(number, number, 0.0)
        share = full.run("hybrid").full_throughput(number) / rate
        yield Checked(f"{number} at once, with prompts: hybrid of plain", share, 1.3 if number <= 8 else 0.98)
        if number == 32:
            yield Checked("32 at once, with prompts: plain of rows / pass time", rate * seconds / number, 0.85)
            passes = plain.token_seconds(0.99)[0] / seconds
            yield Checked("32 at once, with prompts: two passes of p99 between tokens", 2 / passes, 1.0)


def early_length(result: Result) -> float:
    """The largest M of ten steps in a row that end within the first 30 steps."""
    tokens = [count for each in result.answers for count in each.tokens[1:]][:WARM_UP]
    windows = range(max(1, len(tokens) - _WINDOW + 1))
    return max(sum(tokens[begin : begin + _WINDOW]) for begin in windows) / _WINDOW


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "simulated_device.bars", __doc__, "answers.jsonl --datastore CODE --known ANSWERS_STORE --costs h200-*.json"
    )
    add = parser.add_argument
    add("answers", type=Path, metavar="ANSWERS", help="recorded by research.record_answers")
    add("--datastore", required=True, metavar="STORE", help="folder of a datastore")
    add("--known", required=True, metavar="STORE", help="folder of a datastore that was built from ANSWERS")
    add("--costs", type=Path, nargs="*", default=[], metavar="FILE", help="cost tables of further devices")
    add("--limit", type=int, default=30, metavar="N", help="answers, of all groups in turn (default: %(default)s)")
    add_seed(parser)
    return parser


def _run(args: argparse.Namespace) -> int:
    answers = read_answers(args.answers, args.limit, 21)
    with open_datastore(args.datastore) as store, open_datastore(args.known) as known:
        case = Case(answers, GPU, store, seed=args.seed)
        devices = {"CPU": costs_like(CPU, 0.057)} | {path.stem: read_costs(path)[0] for path in args.costs}
        knowing = replace(case, store=known)
        rows, missed = [], 0
        for each in chain(
            holding(replace(knowing, answers=answers[:4])),
            losing(knowing),
            unsteady(case),
            starved(case),
            models(case),
            *(tables(replace(case, costs=costs), name) for name, costs in devices.items()),
            batches(case),
            prompts(case),
        ):
            missed += not each.holds
            rows.append([each.name, f"{each.value:.3f}", f"{each.bar:g}", "" if each.holds else "missed"])
            print(f"{each.name}: {each.value:.3f}", file=sys.stderr, flush=True)
    print(format_table(["case", "value", "at least", ""], rows))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
