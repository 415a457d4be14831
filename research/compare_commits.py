"""Compares the decoding speed of two checkouts of Suffolk: two processes take turns piece by piece, on the same text.

One process waits while the other decodes, so both meet the same noise. Each checkout needs its compiled core in datastore/.
With the same checkout twice, the differences are noise.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from transformers import AutoTokenizer

from research.command import add_seed, command_parser, run_command
from suffolk.benchmarks.decode.measure import WARM_UP_TOKENS
from suffolk.benchmarks.decode.options import PLAIN
from suffolk.benchmarks.decode.report import with_interval
from suffolk.benchmarks.decode.way import MOST_TOKENS, Piece, beside_plain, ratios
from suffolk.benchmarks.parts import exit_code, keep, stop_lines
from suffolk.benchmarks.prompts import STYLES, encode_prompt, load_prompts
from suffolk.benchmarks.report import make_report, write_report
from suffolk.datastore.errors import Internal, InvalidArgument, NotFound
from suffolk.datastore.text_table import format_table
from suffolk.serving.decoding.drafters.neural.tree_bounds import rows_behind
from suffolk.serving.decoding.engine.model.target_loader import DTYPES

EXAMPLES = (
    "OLD_CHECKOUT . --model MODEL --datastore STORE --prompts prompts/ --threads 1 --json compared.json",
    ". . --model MODEL --prompts prompts/ --drafters none prompt-lookup",
)
OLD, NEW = "old", "new"
HEADERS = ("prompts, drafter", "texts", "pieces", "new/old", "speed", "process", "M old", "M new", "same text")
NOTES = (
    "both checkouts decode each text in turn, in pieces and random order; each piece of the new one is compared to the pieces "
    "of the old one around it",
    "new/old: median of the ratios of their speeds; speed: all tokens to those that the old one would have generated in the "
    "same time; process: the same by processor time; in brackets: 95 % interval, from random texts and pieces",
)


class Side:
    """The process of one checkout. A context manager that ends the process."""

    def __init__(self, checkout: Path, options: dict[str, Any], script: str = "compare_commits_worker.py") -> None:
        """Start ``script``, and send it ``options``. Raises NotFound if ``checkout`` has no compiled Suffolk."""
        if not (checkout / "suffolk" / "__init__.py").is_file():
            raise NotFound(f"checkout {checkout}: there is no Suffolk; name the root of a repository")
        if not list((checkout / "datastore").glob("_native*.so")):
            raise NotFound(
                f"checkout {checkout}: datastore/ has no compiled core; run 'python setup.py build_ext --inplace' there"
            )
        self._checkout = checkout.resolve()
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve().with_name(script))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(self._checkout)},
            start_new_session=True,  # Ctrl-C is for this process, which then reports
        )
        self._send(options)

    def wait_until_ready(self) -> None:
        """Wait until the process takes orders. Raises Internal: the process failed, or runs other code than the checkout's."""
        package = Path(self._receive()["package"])
        if package != self._checkout / "suffolk" / "__init__.py":
            raise Internal(f"checkout {self._checkout}: the process imported {package}; uninstall that package")

    def ask(self, order: str, **arguments: Any) -> dict[str, Any]:
        """Give one order and wait for its reply. Raises Internal if the process has ended."""
        self._send({"order": order} | arguments)
        return self._receive()

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the next reply is missing, which is reported
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Internal(
                f"checkout {self._checkout}: its process ended with {self._process.wait()}; see its error above"
            )
        found: dict[str, Any] = json.loads(line)
        return found

    def __enter__(self) -> Side:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()


@dataclass(slots=True)
class Text:
    """A text by one side. ``state``: its last reply."""

    state: dict[str, Any]
    pieces: list[Piece] = field(default_factory=list)


def decode_in_turns(
    sides: dict[str, Side], drafter: str, ids: list[int], settings: dict[str, Any], tokens: int, order: random.Random
) -> dict[str, Text]:
    """Decode one text on both sides, ``tokens`` at a time, in an order that ``order`` shuffles in each round."""
    names = order.sample(list(sides), len(sides))
    texts = {name: Text(sides[name].ask("begin", drafter=drafter, prompt=ids, settings=settings)) for name in names}
    turn, end = 0, 1
    while running := [name for name in sides if not texts[name].state["finish"]]:
        end += tokens
        for name in order.sample(running, len(running)):
            text = texts[name]
            if text.state["length"] < end:
                text.state = sides[name].ask("run", drafter=drafter, tokens=end)
                timed = (text.state[each] for each in ("tokens", "steps", "seconds", "process_seconds"))
                text.pieces.append(Piece(turn, *timed))
                turn += 1
    return texts


def compare(
    sides: dict[str, Side], encoded: list[tuple[str, list[int]]], args: argparse.Namespace
) -> Iterator[list[Any]]:
    """Yield the rows of all drafters for each prompt, after a warm-up. ``encoded``: prompt sets and token ids."""
    settings = {"max_new_tokens": args.max_new_tokens, "temperature": args.temperature, "seed": args.seed}
    settings |= {"ignore_eos": args.ignore_eos}
    warm_up = settings | {"max_new_tokens": WARM_UP_TOKENS}
    for drafter in args.drafters:
        decode_in_turns(sides, drafter, encoded[0][1], warm_up, WARM_UP_TOKENS, random.Random(0))
    for place, (group, ids) in enumerate(encoded):
        order, rows = random.Random(f"{args.seed} {place}"), []
        for drafter in order.sample(args.drafters, len(args.drafters)):
            texts = decode_in_turns(sides, drafter, ids, settings, args.piece_tokens, order)
            pieces = {name: [asdict(piece) for piece in text.pieces] for name, text in texts.items()}
            same = texts[OLD].state["text"] == texts[NEW].state["text"]
            rows.append({"group": group, "drafter": drafter, "identical": same, "pieces": pieces})
        yield rows


def summarize(
    runs: Sequence[dict[str, Any]], drafters: Sequence[str], seed: int
) -> dict[str, dict[str, dict[str, Any]]]:
    """Map prompt set -> drafter -> ratios of the new checkout to the old one. With several sets, "all" combines them."""
    groups = list(dict.fromkeys(run["group"] for run in runs))
    chosen = {group: [run for run in runs if run["group"] == group] for group in groups}
    if len(groups) > 1:
        chosen["all"] = list(runs)
    return {
        group: {name: _summary([run for run in each if run["drafter"] == name], seed) for name in drafters}
        for group, each in chosen.items()
    }


def _summary(runs: Sequence[dict[str, Any]], seed: int) -> dict[str, Any]:
    pieces = {name: [[Piece(**each) for each in run["pieces"][name]] for run in runs] for name in (OLD, NEW)}
    lengths = {}
    for name, texts in pieces.items():
        steps = sum(piece.steps for text in texts for piece in text)
        lengths[name] = sum(piece.tokens for text in texts for piece in text) / steps if steps else 1.0
    beside = [beside_plain(new, old) for old, new in zip(pieces[OLD], pieces[NEW], strict=True)]
    identical = sum(run["identical"] for run in runs)
    return {
        "texts": len(runs),
        "identical": identical,
        "mean_generated_length": lengths,
        "pieces": ratios(beside, seed),
    }


def lines(summary: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    """Format the table."""
    rows = [
        (
            f"{group}: {name}",
            each["texts"],
            each["pieces"]["count"],
            *(with_interval(each["pieces"], ratio) for ratio in ("ratio", "speed_up", "process_speed_up")),
            *(each["mean_generated_length"][side] for side in (OLD, NEW)),
            f"{each['identical']}/{each['texts']}",
        )
        for group, drafters in summary.items()
        for name, each in drafters.items()
    ]
    return [format_table(HEADERS, rows), *NOTES]


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(args: argparse.Namespace) -> int:
    prompts = load_prompts(tuple(args.prompts), args.style, args.limit, args.seed)
    if args.piece_tokens < 1:
        raise InvalidArgument(f"--piece-tokens is {args.piece_tokens}; it must be 1 or more")
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    encoded = [(prompt.group, encode_prompt(prompt, tokenizer, args.model)) for prompt in prompts]
    longest = max(len(ids) for _, ids in encoded)
    options = {name: getattr(args, name) for name in ("model", "dtype", "device", "threads", "max_nodes", "drafters")}
    options |= {"datastores": args.datastore, "capacity": longest + args.max_new_tokens + rows_behind(args.max_nodes)}
    with contextlib.ExitStack() as stack:
        sides: dict[str, Side] = {}
        for name, checkout, costs in ((OLD, args.old, args.old_costs or args.costs), (NEW, args.new, args.costs)):
            side = Side(checkout, options | {"costs": None if costs is None else str(costs)})
            sides[name] = stack.enter_context(side)
            side.wait_until_ready()  # the start of the other one must not disturb its measurement of costs
        kept, stopped = keep(compare(sides, encoded, args), len(encoded), "prompts")
    runs = [row for rows in kept for row in rows]
    summary = summarize(runs, args.drafters, args.seed)
    print("\n".join([*stop_lines(stopped), *lines(summary)]))
    if args.json is not None:
        settings = {name: str(value) for name, value in vars(args).items()}
        results = {"stopped": stopped, "summary": summary, "runs": runs}
        write_report(make_report("compare commits", args.seed, settings, results, NOTES), args.json)
    return exit_code(stopped)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("compare_commits", __doc__, *EXAMPLES)
    add = parser.add_argument
    add("old", type=Path, metavar="OLD", help="root of the old checkout")
    add("new", type=Path, metavar="NEW", help="root of the new checkout")
    add("--model", required=True, help="model folder in the Hugging Face layout, or hub name")
    add("--prompts", type=Path, nargs="+", required=True, help=".jsonl files, or folders of them")
    add("--limit", type=int, help="prompts of each file, chosen at random (default: all)")
    add("--style", choices=STYLES, default="chat", help="as in 'suffolk bench decode' (default: %(default)s)")
    add("--datastore", action="append", default=[], metavar="STORE", help="folder or URL; may be repeated")
    add("--drafters", nargs="+", default=[PLAIN, "prompt-lookup"], metavar="NAME", help="(default: none prompt-lookup)")
    add("--max-nodes", type=int, default=64, metavar="N", help="most nodes of a draft tree (default: %(default)s)")
    add("--max-new-tokens", type=int, default=128, metavar="N", help="longest answer (default: %(default)s)")
    add("--ignore-eos", action="store_true", help="do not end at the model's end-of-text tokens")
    add("--temperature", type=float, default=0.0, metavar="T", help="0: greedy (default: %(default)s)")
    add("--piece-tokens", type=int, default=MOST_TOKENS, metavar="N", help="tokens of a piece (default: %(default)s)")
    add("--dtype", choices=DTYPES, default="auto", help="data type of the weights (default: %(default)s)")
    add("--device", default="auto", help="auto, cpu, cuda ... (default: %(default)s)")
    add("--threads", type=int, help="CPU threads (default: torch's choice)")
    add("--costs", type=Path, help="file of 'suffolk profile' (default: each checkout's stored or measured costs)")
    add("--old-costs", type=Path, help="the same for the old checkout, if its files have another form")
    add_seed(parser)
    add("--json", type=Path, help="file for all numbers")
    return parser


if __name__ == "__main__":
    sys.exit(main())
