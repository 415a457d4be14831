"""Makes about 120 prompts of code, chat and reasoning to fit shipped constants to. No benchmark uses these prompts.

They come from functions of Python's standard library and from templates. All runs of one Python version make the same
prompts.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from research.command import add_seed, command_parser, run_command
from research.library_functions import Function, library_functions
from suffolk.benchmarks.folder import make_folder, writing

Row = dict[str, Any]
SOURCE = f"Python {sys.version_info.major}.{sys.version_info.minor} standard library (PSF)"
_FENCE = "```python\n{}\n```"
_CHAT = (
    "Write a short letter to {who} about {what}.",
    "Give me five tips for {doing}, each with one sentence of explanation.",
    "What are the advantages and disadvantages of {doing}?",
    "Explain {idea} to a ten-year-old.",
    "Compare {idea} with {other}. Where do they differ most?",
    "I am planning {what}. What should I think of before I begin?",
    "Tell a story of about ten sentences in which {who} learns something about {idea}.",
    "Make a table with three columns about {idea}, {other} and what people use them for.",
)
_WORDS = {
    "who": ("my landlord", "a retired sailor", "the town library", "an old schoolfriend", "a young baker", "the new manager"),
    "what": ("a broken heating", "a garden behind the house", "a class reunion", "a change of the opening hours", "moving abroad"),
    "doing": ("learning the violin", "baking bread at home", "cycling to work", "keeping bees", "working at night"),
    "idea": ("inflation", "photosynthesis", "a sorting algorithm", "the tides", "insurance", "vaccination", "a budget"),
    "other": ("barter", "an earthquake", "a railway timetable", "composting", "a telescope", "encryption"),
}  # fmt: skip

_SUMS = (
    "{name} buys {a} boxes with {b} {things} each and gives {c} {things} away. How many {things} are left? Reason step by step.",
    "A train goes {a} kilometres an hour for {b} hours and then {c} kilometres more. How far does it go in all? Show each step.",
    "{name} earns {a} dollars an hour, works {b} hours a week and spends {c} dollars each week. How much is saved in four weeks? "
    "Explain how you get there.",
    "A tank holds {d} litres. {a} litres run in each minute and {b} run out. It holds {c} litres now. After how many minutes is it "
    "full? Work it out line by line.",
    "There are {a} rows of {b} seats, and {c} people sit. Then a third of the free seats is taken. How many stay free? "
    "Think it through, then give the result.",
    "{name} reads {b} pages on the first day and {c} more than the day before on each day after it. How many pages are read in "
    "five days? Give all steps.",
)
_NAMES = ("Amara", "Boris", "Chiyo", "Dolores", "Emeka", "Frida")
_THINGS = ("candles", "marbles", "stamps", "buttons", "apricots")


def tuning_rows(seed: int = 0) -> dict[str, list[Row]]:
    """Return the rows by set: coding (76), chat (24) and reasoning (24)."""
    functions = library_functions()
    order = np.random.default_rng(seed).permutation(len(functions))
    chosen = iter([functions[place] for place in order.tolist()])
    coding = [
        *_rows("complete", 28, chosen, _complete),
        *_rows("write", 16, chosen, _write),
        *_rows("explain", 12, chosen, _explain),
        *_rows("tests", 10, chosen, _tests),
        *_rows("rename", 10, chosen, _rename),
    ]
    return {
        "coding": coding,
        "chat": [_asked("chat", number, each) for number, each in enumerate(chat_questions(24, seed))],
        "reasoning": [_asked("reasoning", number, each) for number, each in enumerate(reasoning_questions(24, seed))],
    }


def _rows(category: str, count: int, functions: Iterator[Function], make: Any) -> list[Row]:
    rows: list[Row] = []
    for function in functions:
        made = make(function)
        if made is not None:
            common = {"id": f"tuning-{category}/{len(rows)}", "set": "coding", "category": category, "source": SOURCE}
            rows.append(common | made)
        if len(rows) == count:
            break
    return rows


def _complete(function: Function) -> Row:
    code = _FENCE.format(function.head)
    return _said(f"Fill in the body of this function and give all of it in one code block.\n\n{code}") | {
        "prefill": f"```python\n{function.head}\n"
    }


def _write(function: Function) -> Row:
    head = function.head.splitlines()[0].removeprefix("def ").removesuffix(":")
    return _said(f"Write a Python function `{head}`. What it does: {function.summary}")


def _explain(function: Function) -> Row:
    return _said(f"What does this code do? Explain it step by step.\n\n{_FENCE.format(function.code)}")


def _tests(function: Function) -> Row:
    return _said(f"Write unit tests with pytest for this function.\n\n{_FENCE.format(function.code)}")


def _rename(function: Function) -> Row | None:
    if not function.variable:
        return None
    asked = (
        f"Rename `{function.variable}` to `{function.variable}_value` in this function and print the whole function."
    )
    return _said(f"{asked}\n\n{_FENCE.format(function.code)}")


def _asked(group: str, number: int, question: str) -> Row:
    return {"id": f"tuning-{group}/{number}", "set": group, "source": "templates"} | _said(question)


def _said(content: str) -> Row:
    return {"messages": [{"role": "user", "content": content}]}


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """Write one JSON object a line.

    Raises:
        ResourceExhausted: the file cannot be written.
    """
    make_folder(path.parent)
    with writing(path):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(args: argparse.Namespace) -> int:
    for name, rows in tuning_rows(args.seed).items():
        write_rows(rows, args.output / f"{name}.jsonl")
        print(f"{args.output / f'{name}.jsonl'}: {len(rows)} prompts")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("tuning_prompts", __doc__, "--output tuning/")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder of the .jsonl files")
    add_seed(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())


def chat_questions(count: int, seed: int) -> list[str]:
    """Return ``count`` chat questions, from all templates in turn."""
    rng = np.random.default_rng([seed, 1])
    return [
        _CHAT[number % len(_CHAT)].format(**{name: str(rng.choice(words)) for name, words in _WORDS.items()})
        for number in range(count)
    ]


def reasoning_questions(count: int, seed: int) -> list[str]:
    """Return ``count`` arithmetic questions, from all templates in turn."""
    rng = np.random.default_rng([seed, 2])
    questions = []
    for number in range(count):
        a, b, c = int(rng.integers(12, 30)), int(rng.integers(3, 12)), int(rng.integers(4, 40))
        chosen = {"name": str(rng.choice(_NAMES)), "things": str(rng.choice(_THINGS))}
        questions.append(_SUMS[number % len(_SUMS)].format(a=a, b=b, c=c, d=c + 20 * (a - b), **chosen))
    return questions
