"""Compares two results of one measurement, as 'suffolk bench' writes them, and shows what changed beyond noise.

Of a value with an interval, or of a list of samples, the two spreads must not overlap. Any other number must change
by --least percent.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any

from research.command import command_parser, run_command
from suffolk.datastore.errors import InvalidArgument, NotFound

_INTERVAL = "_interval"
_SAMPLES = 4
"""Numbers of a list that count as samples of one value."""


@dataclass(frozen=True, slots=True)
class Value:
    """A number and its spread. ``low``, ``high``: NaN if it is unknown."""

    middle: float
    low: float = float("nan")
    high: float = float("nan")

    def differs(self, other: Value, least: float) -> bool:
        """Whether the two are apart beyond noise. ``least``: change of a number without a spread, as a share."""
        if self.middle == other.middle:
            return False
        if self.low == self.low and other.low == other.low:  # not NaN
            return self.high < other.low or other.high < self.low
        return abs(other.middle - self.middle) > least * abs(self.middle)


def values(document: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Value]]:
    """The numbers of a result by their places. The texts of a list's item name it; items without any are single runs, left out."""
    if isinstance(document, Mapping):
        for name, each in document.items():
            if isinstance(each, int | float) and not isinstance(each, bool):
                yield (*path, name), _with_interval(each, document.get(name + _INTERVAL))
            elif not name.endswith(_INTERVAL):
                yield from values(each, (*path, name))
    elif isinstance(document, list) and len(document) >= _SAMPLES and all(_is_number(each) for each in document):
        low, middle, high = quantiles(document, n=4)
        yield path, Value(middle, low, high)
    elif isinstance(document, list):
        for each in document:
            if name := _name(each):
                yield from values(each, (*path, name))


def changes(old: Any, new: Any, least: float) -> list[tuple[str, Value, Value]]:
    """What differs beyond noise, the largest change first: its place, before, and after."""
    before, after = dict(values(old)), dict(values(new))
    found = [
        (" ".join(path), before[path], after[path])
        for path in before.keys() & after.keys()
        if before[path].differs(after[path], least)
    ]
    return sorted(found, key=lambda each: (-_size(each[1].middle, each[2].middle), each[0]))


def compare(args: argparse.Namespace) -> int:
    old, new = _read(args.old), _read(args.new)
    if old.get("benchmark") != new.get("benchmark"):
        raise InvalidArgument(f"{args.old} is of {old.get('benchmark')}, {args.new} of {new.get('benchmark')}")
    for name in ("machine", "versions", "settings"):
        told = {key: (old[name].get(key), value) for key, value in new[name].items() if key != "load_average"}
        for key, (before, after) in told.items():
            if before != after:
                print(f"{name}.{key}: {before} -> {after}")
    found = changes(old["results"], new["results"], args.least / 100)
    for place, before, after in found:
        ratio = f"{after.middle / before.middle:.3f}" if before.middle else "new"
        print(f"{ratio:>8}  {before.middle:.6g} -> {after.middle:.6g}  {place}")
    total = len(dict(values(old["results"])).keys() & dict(values(new["results"])).keys())
    print(f"{len(found)} of {total} values changed beyond noise: {old['commit'][:8]} -> {new['commit'][:8]}")
    return 0


def _with_interval(value: float, interval: Any) -> Value:
    return Value(value, *interval) if isinstance(interval, Sequence) and len(interval) == 2 else Value(value)


def _name(item: Any) -> str:
    if not isinstance(item, Mapping):
        return ""
    names = [str(each) for key, each in item.items() if isinstance(each, str) or key in ("requests", "batch", "nodes")]
    return "/".join(names)


def _size(before: float, after: float) -> float:
    return abs(after - before) / abs(before) if before else float("inf")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _read(path: Path) -> Any:
    try:
        found = json.loads(path.read_bytes())
        if isinstance(found, dict) and {"benchmark", "machine", "versions", "settings", "results"} <= found.keys():
            return found
    except OSError as error:
        raise NotFound(f"{path}: {error.strerror}; name a result of 'suffolk bench ... --json FILE'") from None
    except ValueError:
        pass
    raise InvalidArgument(f"{path}: no result of 'suffolk bench ... --json FILE'")


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), compare, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("compare_results", __doc__, "before.json after.json")
    parser.add_argument("old", type=Path, metavar="OLD.json", help="result before a change")
    parser.add_argument("new", type=Path, metavar="NEW.json", help="result after it, of the same measurement")
    parser.add_argument(
        "--least", type=float, default=3.0, metavar="PERCENT", help="least change of a number (default: %(default)s)"
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
