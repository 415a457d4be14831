"""Halves and doubles each constant of the drafting policy, and tells which bars a simulated device then misses.

Of a constant near 1, such as MEMORY, the difference from 1 is halved and doubled.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from research.command import add_seed, command_parser, run_command
from research.simulated_device.bars import CPU, GPU, Checked, batches, holding, losing, models, unsteady
from research.simulated_device.comparison import NAMES, SIZES, Case, FixedPlanner, read_answers
from research.simulated_device.device import costs_like
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.text_table import format_table
from suffolk.serving.decoding.engine.policy import constants

_FACTORS = (0.5, 2.0)
_NEAR_ONE = ("MARGIN", "MEMORY", "RECOVERY")
"""Constants whose difference from 1 is halved and doubled."""
_DEVICES = {"H200": costs_like(GPU, 0.007), "CPU": costs_like(CPU, 0.057)}


@dataclass(frozen=True, slots=True)
class Judge:
    """The bars of ``research.simulated_device.bars``, with fewer answers and devices.

    Attributes:
        code: a datastore that knows none of the answers.
        known: one that holds them.
        best: rate of the best fixed tree size, by device and drafter. It does not depend on the policy.
    """

    code: Case
    known: Case
    best: dict[tuple[str, str], float]

    def missed(self) -> list[Checked]:
        """The bars that the present constants miss."""
        few = replace(self.known, answers=self.known.answers[:3])
        checked = chain(
            holding(few, (7, 55)),
            losing(self.known, (3, 55)),
            unsteady(self.code, (55,)),
            models(self.code),
            self._tables(),
            batches(self.code, (8,)),
        )
        return [each for each in checked if not each.holds]

    def _tables(self) -> Iterator[Checked]:
        for device, costs in _DEVICES.items():
            rates = {name: replace(self.code, costs=costs).run(name).rate for name in NAMES}
            for name, rate in rates.items():
                yield Checked(f"{device}: {name} of the best fixed size", rate / self.best[device, name], 0.95)
            part = max(self.best[device, ""], rates["prompt-lookup"], rates["datastore"])
            yield Checked(f"{device}: hybrid of its best part", rates["hybrid"] / part, 0.98)


def judge(code: Case, known: Case) -> Judge:
    """A judge that has tried all fixed tree sizes."""
    best = {}
    for device, costs in _DEVICES.items():
        case = replace(code, costs=costs)
        plain = best[device, ""] = case.run(None).rate
        for name in NAMES:
            best[device, name] = max(plain, *(case.run(name, FixedPlanner(size)).rate for size in SIZES))
    return Judge(code, known, best)


@contextlib.contextmanager
def changed(name: str, value: float) -> Iterator[None]:
    """Within the block, the constant ``name`` of the policy is ``value`` in all modules that import it."""
    before = getattr(constants, name)
    users = [each for key, each in sys.modules.items() if key.startswith("suffolk.") and hasattr(each, name)]
    for each in users:
        setattr(each, name, type(before)(value))
    try:
        yield
    finally:
        for each in users:
            setattr(each, name, before)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "simulated_device.ranges",
        __doc__,
        "answers.jsonl --datastore CODE --known ANSWERS_STORE --constants START HOPE",
    )
    names = sorted(name for name in vars(constants) if name.isupper())
    add = parser.add_argument
    add("answers", type=Path, metavar="ANSWERS", help="recorded by research.record_answers")
    add("--datastore", required=True, metavar="STORE", help="folder of a datastore")
    add("--known", required=True, metavar="STORE", help="folder of a datastore that was built from ANSWERS")
    add("--limit", type=int, default=10, metavar="N", help="answers, of all groups in turn (default: %(default)s)")
    add("--constants", nargs="+", choices=names, default=names, metavar="NAME", help="(default: all)")
    add_seed(parser)
    return parser


def _run(args: argparse.Namespace) -> int:
    answers = read_answers(args.answers, args.limit, 21)
    with open_datastore(args.datastore) as store, open_datastore(args.known) as known:
        case = Case(answers, GPU, store, seed=args.seed)
        judging = judge(case, replace(case, store=known))
        print("as they are:", _told(judging.missed()), file=sys.stderr, flush=True)
        rows = []
        for name in args.constants:
            value = getattr(constants, name)
            row = [name, f"{value:g}"]
            for factor in _FACTORS:
                with changed(name, 1 - factor * (1 - value) if name in _NEAR_ONE else factor * value):
                    row.append(_told(judging.missed()))
            print(*row, sep=": ", file=sys.stderr, flush=True)
            rows.append(row)
    print(format_table(["constant", "value", *(f"times {each:g}" for each in _FACTORS)], rows))
    return 0


def _told(missed: Sequence[Checked]) -> str:
    return ", ".join(f"{each.name} {each.value:.3f}" for each in missed) or "holds"


if __name__ == "__main__":
    sys.exit(main())
