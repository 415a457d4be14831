"""Measures the overlap of prompts, and of answers in their rows, with a datastore.

Drafts of overlapping text prove nothing.

Every window of WINDOW tokens is looked up. A prompt is flagged if more than SHARE of its windows occur, or if a run of
LONGEST tokens occurs. --drop writes the flagged ids to a file for 'python -m research.one_tree --exclude'.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from research.command import command_parser, run_command
from research.exclusions import read_rows
from suffolk.benchmarks.prompts import messages_of, row_name
from suffolk.benchmarks.report import commit, describe_machine
from suffolk.cli.output_file import require_folder
from suffolk.datastore.datastore import Datastore, open_datastore
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.files import write_json, write_text
from suffolk.datastore.text_table import format_table
from suffolk.datastore.tokenizer import load_tokenizer

WINDOW, SHARE, LONGEST = 13, 0.5, 50
ANSWERS = ("canonical_solution", "solution", "answer", "reference", "reference_answer", "test")
"""Fields of a row that may hold a reference answer."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """The overlap of one text with a datastore.

    Attributes:
        name, group, part: id and set of the row, and the text: prompt, prefill, or the field of an answer.
        tokens: number of tokens of the text.
        windows: number of runs of ``WINDOW`` tokens. ``found``: number of runs that occur.
        longest: length of the longest run that occurs, at most the datastore's order depth. ``at``: start of that run.
    """

    name: str
    group: str
    part: str
    tokens: int
    windows: int
    found: int
    longest: int
    at: int

    @property
    def share(self) -> float:
        """The share of windows that occur; 0 for a text without windows."""
        return self.found / self.windows if self.windows else 0.0


def overlap(store: Datastore, ids: Sequence[int], name: str = "", group: str = "", part: str = "prompt") -> Overlap:
    """Compute the overlap of ``ids`` with ``store``, from the longest match at each token."""
    reach = int(store.manifest.order_depth)
    contexts = [ids[max(0, end - reach) : end] for end in range(1, len(ids) + 1)]
    lengths = [match.length for match in store.lookup_batch(contexts, reach)] if contexts else []
    longest = max(lengths, default=0)
    at = lengths.index(longest) + 1 - longest if lengths else 0
    found = sum(length >= WINDOW for length in lengths)
    return Overlap(name, group, part, len(ids), max(0, len(ids) - WINDOW + 1), found, longest, at)


def texts_of(row: dict[str, Any], place: str = "row") -> dict[str, str]:
    """Return the texts of a prompt's row by kind: the prompt, the prefill, and each answer.

    Raises the errors of ``messages_of``.
    """
    messages = "\n".join(each["content"] for each in messages_of(row, place))
    texts = {"prompt": messages or str(row.get("prompt", row.get("text", "")))}
    return texts | {part: str(row[part]) for part in ("prefill", *ANSWERS) if row.get(part)}


def measure_overlap(store: Datastore, tokenizer: Tokenizer, paths: Sequence[Path]) -> list[Overlap]:
    """Yield the overlap of every text in every row of .jsonl files and folders.

    Raises the errors of ``read_rows`` and ``texts_of``, and InvalidArgument if there are no rows.
    """
    found = []
    for path, number, row in read_rows(paths):
        name, group = row_name(row, path, number), str(row.get("set", path.stem))
        for part, text in texts_of(row, f"{path} line {number}").items():
            found.append(overlap(store, tokenizer.encode(text, add_special_tokens=False).ids, name, group, part))
    if not found:
        raise InvalidArgument(f"no prompts in {', '.join(map(str, paths))}; give .jsonl files with one object a line")
    return found


def flagged(found: Sequence[Overlap], share: float, longest: int) -> list[Overlap]:
    """Select texts with more than ``share`` of their windows in the datastore, or a run of ``longest`` tokens."""
    return [each for each in found if each.share > share or each.longest >= longest]


def summary(found: Sequence[Overlap], marked: Sequence[Overlap]) -> list[list[object]]:
    """Return a row for each set and part: texts, windows, share of windows found, longest run, flagged texts."""
    rows: list[list[object]] = []
    for group, part in dict.fromkeys((each.group, each.part) for each in found):
        chosen = [each for each in found if (each.group, each.part) == (group, part)]
        windows, hits = sum(each.windows for each in chosen), sum(each.found for each in chosen)
        longest = max(each.longest for each in chosen)
        count = sum((each.group, each.part) == (group, part) for each in marked)
        rows.append([f"{group}, {part}", len(chosen), windows, hits / windows if windows else 0.0, longest, count])
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(args: argparse.Namespace) -> int:
    require_folder("--drop", args.drop)
    with open_datastore(args.datastore) as store:
        tokenizer = args.tokenizer or store.tokenizer_path()
        if tokenizer is None:
            raise InvalidArgument(f"datastore {args.datastore} has no tokenizer; name it with --tokenizer")
        found = measure_overlap(store, load_tokenizer(tokenizer), args.prompts)
        marked = flagged(found, args.share, args.longest)
        facts = {name: store.info()[name] for name in ("path", "tokens", "documents", "order_depth")}
    print(
        format_table(["set, part", "texts", "windows", "share found", "longest run", "flagged"], summary(found, marked))
    )
    for each in marked:
        print(
            f"flagged: {each.name} ({each.part}): {each.share:.0%} of {each.windows} windows, a run of {each.longest}"
        )
    print(f"flagged in total: {len(marked)} of {len(found)} texts (above {args.share:.0%}, or {args.longest} tokens)")
    if args.drop:
        write_text(args.drop, "".join(f"{name}\n" for name in sorted({each.name for each in marked})))
    if args.json:
        report = {"command": sys.argv, "commit": commit(), "machine": describe_machine(), "datastore": facts}
        limits = {"window": WINDOW, "share": args.share, "longest": args.longest}
        texts = [asdict(each) | {"share": each.share, "flagged": each in marked} for each in found]
        write_json(args.json, report | {"limits": limits, "texts": texts})
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("overlap", __doc__, "--prompts prompts/ --datastore STORE --drop leaked.txt")
    parser.add_argument(
        "--prompts", required=True, nargs="+", type=Path, metavar="PATH", help=".jsonl files or folders"
    )
    parser.add_argument("--datastore", required=True, metavar="STORE", help="folder of a datastore")
    parser.add_argument("--tokenizer", metavar="MODEL", help="default: the datastore's own")
    parser.add_argument(
        "--share", type=float, default=SHARE, metavar="S", help="largest share of windows (default: %(default)s)"
    )
    parser.add_argument("--longest", type=int, default=LONGEST, metavar="N", help="tokens (default: %(default)s)")
    parser.add_argument(
        "--drop", type=Path, metavar="FILE", help="write the ids of flagged prompts to this file, one a line"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the overlap of each text to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
