"""Build a datastore from the Python source on this machine, serve it, and decode coding prompts plain and with drafts.

MODEL=FOLDER_OR_HUB_NAME takes another model; everything that is made stays in .cache/ and is used again."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from demo.model import NAME, fetch_model
from suffolk.benchmarks.decode.measure import measure_decoding
from suffolk.benchmarks.decode.options import PLAIN, DecodingOptions
from suffolk.benchmarks.service.draft_server import served
from suffolk.benchmarks.stopping import exit_code, stop_lines
from suffolk.benchmarks.table import format_table
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.draft_tree import source_name
from suffolk.datastore.errors import SuffolkError
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer

CACHE = Path(".cache")
PROMPTS = Path(__file__).with_name("prompts.jsonl")
DRAFTERS = ("datastore", "hybrid")
BUSY = 2.0
"""Plain decoding of one prompt that is so many times as fast as of another: the figures tell of other programs."""
HEADERS = ("prompt", "drafter", "tokens", "tokens/s", "speed-up", "M", "accepted from", "identical")


def main() -> int:
    """Run the demo; returns the exit code: 0 only if every output was the same."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--model", default=os.environ.get("MODEL"), help=f"folder or hub name (default: {NAME})")
    parser.add_argument("--prompts", type=int, metavar="N", help="only so many prompts (default: all)")
    parser.add_argument("--max-new-tokens", type=int, default=96, metavar="N", help="(default: %(default)s)")
    args = parser.parse_args()
    try:
        return run(args)
    except SuffolkError as error:
        print(f"demo: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def run(args: argparse.Namespace) -> int:
    start = time.monotonic()
    say(f"1. The model: {args.model or NAME}")
    model = args.model or str(fetch_model(CACHE / "models"))
    store = CACHE / "demo" / f"python-{fingerprint(load_tokenizer(model))[:12]}"
    say(f"2. The datastore: the Python source on this machine, in {store}")
    build(store, model)
    with open_datastore(store) as datastore:
        facts = datastore.info()
    print(f"{facts['tokens']:,} tokens of {facts['documents']:,} files, {facts['bytes_per_token']:.2f} bytes a token")
    with served(store) as url:
        say(f"3. The draft service: its own process, at {url}")
        say("4. Decoding: every prompt plain, with the datastore's drafts, and with those of the prompt itself as well")
        options = DecodingOptions(
            model=model,
            prompts=(PROMPTS,),
            datastores=(url,),
            drafters=DRAFTERS,
            limit=args.prompts,
            max_new_tokens=args.max_new_tokens,
            dtype="float32",
        )
        results = measure_decoding(options, lambda line: print(line, flush=True))
    print("\n" + "\n".join([*stop_lines(results["stopped"]), *lines(results), *busy(results["runs"])]))
    print(f"\n{time.monotonic() - start:.0f} s in all")
    return exit_code(results["stopped"]) if all(run["identical"] or near_tie(run) for run in results["runs"]) else 1


def build(store: Path, model: str) -> None:
    """The datastore of the interpreter's library and this environment's packages, unless it is there."""
    if (store / "MANIFEST").is_file():
        return
    sources = [sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")]
    command = [
        sys.executable,
        "-m",
        "suffolk",
        "build",
        "--tokenizer",
        model,
        "--output",
        str(store),
        "--extensions",
        ".py",
    ]
    if code := subprocess.run([*command, *sources]).returncode:
        raise SystemExit(code)


def lines(results: dict[str, Any]) -> list[str]:
    """One table: every prompt, then all of them."""
    runs = sorted(results["runs"], key=lambda run: (run["prompt"], run["drafter"]))
    rows = [row(run) for run in runs if run["drafter"] in DRAFTERS]
    [summary] = results["summary"].values()
    rows += [total_row(name, summary[name]) for name in DRAFTERS]
    return [
        format_table(HEADERS, rows),
        f"plain decoding: {summary['none']['tokens_per_second_total']:.1f} tokens/s over all prompts",
        "speed-up: against plain decoding of the same prompt in the same run; all: of the total time",
        "M: tokens a pass of the model; identical: token for token what plain decoding gives",
    ]


def busy(runs: Sequence[dict[str, Any]]) -> list[str]:
    """A warning, where plain decoding, which takes about as long for every prompt, says that the machine had other work."""
    rates = [run["tokens_per_second"] for run in runs if run["drafter"] == PLAIN and run["tokens_per_second"]]
    if not rates or max(rates) <= BUSY * min(rates):
        return []
    return [
        f"this machine was busy: plain decoding varied from {min(rates):.1f} to {max(rates):.1f} tokens/s; "
        "run it again when it is quiet"
    ]


def total_row(name: str, total: dict[str, Any]) -> list[object]:
    identical = "yes" if total["identical"] == total["runs"] else f"{total['identical']} of {total['runs']}"
    speed_up, length = f"{total['speed_up_total_time']:.2f}x", f"{total['mean_generated_length']:.2f}"
    rate, accepted = f"{total['tokens_per_second_total']:.1f}", by_source(total["accepted_by_source"])
    return ["all", name, total["tokens"], rate, speed_up, length, accepted, identical]


def row(run: dict[str, Any]) -> list[object]:
    accepted = by_source({source_name(int(bits)): count for bits, count in run["accepted_by_source"].items()})
    identical = (
        "yes" if run["identical"] else f"no: at token {run['differs_at']} (near-tie, gap {run['near_tie_gap']:.1e})"
    )
    speed_up = f"{run['speed_up']:.2f}x" if "speed_up" in run else "-"
    length = f"{run['mean_generated_length']:.2f}"
    rate = f"{run['tokens_per_second']:.1f}"
    return [run["prompt"], run["drafter"], run["tokens"], rate, speed_up, length, accepted, identical]


def by_source(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "-"


def near_tie(run: dict[str, Any]) -> bool:
    """Whether the first difference is one that rounding decides: fp32 scores this close have no order of their own."""
    return float(run["near_tie_gap"]) < 1e-3


def say(text: str) -> None:
    print(f"\n{text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
