"""Builds a datastore from the Python source on this machine, serves it, and decodes coding prompts with and without drafts."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from suffolk.benchmarks.decode.measure import measure_decoding
from suffolk.benchmarks.decode.options import PLAIN, DecodingOptions
from suffolk.benchmarks.demo.model import NAME, fetch_model
from suffolk.benchmarks.parts import exit_code, stop_lines
from suffolk.benchmarks.service.load import served
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import Internal
from suffolk.datastore.manifest import MANIFEST_NAME
from suffolk.datastore.text_table import format_table
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer

PROMPTS = Path(__file__).with_name("prompts.jsonl")
DRAFTERS = ("prompt-lookup", "datastore", "hybrid")
HEADERS = ("prompt", "tokens", "plain tokens/s", *DRAFTERS, "identical")
BUSY = 2.0
"""Ratio of the fastest to the slowest plain decoding of a prompt. Above this ratio, other programs disturb the figures."""
NEAR_TIE = 1e-3
"""Difference of two fp32 logits below which rounding decides which one is larger."""


def run(folder: Path, model: str | None, prompts: int | None, max_new_tokens: int) -> int:
    """Run the demo. Returns the exit code: 0 if all outputs are identical to plain decoding, except at near-ties.

    Args:
        folder: the model and the datastore are kept there, and used again.
        model: folder or hub name; None: a small one is downloaded.
        prompts: number of prompts, chosen at random; None: all.

    Raises the errors of ``fetch_model``.
    """
    start = time.monotonic()
    say(f"1. Model: {model or NAME}")
    model = model or str(fetch_model(folder / "models"))
    store = python_store(folder, model)
    say(f"2. Datastore: the Python source on this machine, in {store}")
    build(store, model)
    with open_datastore(store) as datastore:
        facts = datastore.info()
    print(f"{facts['tokens']:,} tokens of {facts['documents']:,} files, {facts['bytes_per_token']:.2f} bytes a token")
    with served(store) as url:
        say(f"3. Draft service: a process at {url}")
        say("4. Decoding: each prompt without drafts and with each drafter, in pieces that take turns")
        options = DecodingOptions(
            model=model,
            prompts=(PROMPTS,),
            datastores=(url,),
            drafters=DRAFTERS,
            limit=prompts,
            max_new_tokens=max_new_tokens,
            dtype="float32",
        )
        results = measure_decoding(options)
    print("\n" + "\n".join([*stop_lines(results["stopped"]), *lines(results), *busy(results["runs"])]))
    program = "suffolk" if shutil.which("suffolk") else Path(sys.executable).with_name("suffolk")
    print(f"\n{time.monotonic() - start:.0f} s in all. Try it:\n  {program} lookup {store} 'raise ValueError('")
    print(f"  {program} generate --model {model} --datastore {store} 'Write a stack class in Python.'")
    return exit_code(results["stopped"]) if all(run["identical"] or near_tie(run) for run in results["runs"]) else 1


def python_store(folder: Path, model: str) -> Path:
    """Return the folder of the demo's datastore for a model's tokenizer."""
    return folder / "demo" / f"python-{fingerprint(load_tokenizer(model))[:12]}"


def build(store: Path, model: str) -> None:
    """Build the datastore from the standard library and the installed packages, unless it exists."""
    if (store / MANIFEST_NAME).is_file():
        return
    sources = [sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")]
    command = [sys.executable, "-m", "suffolk", "build", "--tokenizer", model, "--output", str(store)]
    if code := subprocess.run([*command, "--extensions", ".py", *sources]).returncode:
        raise Internal(f"the build of {store} ended with code {code}; its last line says why")


def lines(results: dict[str, Any]) -> list[str]:
    """Return one table: a row for each prompt, a row for all prompts, and M."""
    by_prompt: dict[str, dict[str, Any]] = {}
    for each in results["runs"]:
        by_prompt.setdefault(each["prompt"], {})[each["drafter"]] = each
    rows = [row(prompt, runs) for prompt, runs in sorted(by_prompt.items()) if len(runs) > len(DRAFTERS)]
    [summary] = results["summary"].values()
    return [
        format_table(HEADERS, [*rows, *total_rows(summary)]),
        "speed-up: over plain decoding of the same prompts in this run, draft service and drafting included",
        "M: mean generated length, tokens per pass of the model; identical: token for token equal to plain decoding",
    ]


def row(prompt: str, runs: dict[str, dict[str, Any]]) -> list[object]:
    plain, drafted = runs[PLAIN], [runs[name] for name in DRAFTERS]
    speed_ups = [f"{run['speed_up']:.2f}x" if "speed_up" in run else "-" for run in drafted]
    different = [run for run in drafted if not run["identical"]]
    identical = f"near-tie, gap {different[0]['near_tie_gap']:.1e}" if different else "yes"
    return [prompt, plain["tokens"], f"{plain['tokens_per_second']:.1f}", *speed_ups, identical]


def total_rows(summary: dict[str, Any]) -> list[list[object]]:
    plain, drafted = summary[PLAIN], [summary[name] for name in DRAFTERS]
    same, runs = (sum(each[key] for each in drafted) for key in ("identical", "runs"))
    speed_ups = [f"{each['speed_up_total_time']:.2f}x" for each in drafted]
    lengths = [f"{each['mean_generated_length']:.2f}" for each in drafted]
    rate = f"{plain['tokens_per_second_total']:.1f}"
    return [["all", plain["tokens"], rate, *speed_ups, f"{same} of {runs}"], ["M", "", "1.00", *lengths, ""]]


def busy(runs: Sequence[dict[str, Any]]) -> list[str]:
    """Return a warning if the speed of plain decoding varies over the prompts, because then the machine had other work."""
    rates = [run["tokens_per_second"] for run in runs if run["drafter"] == PLAIN and run["tokens_per_second"]]
    if not rates or max(rates) <= BUSY * min(rates):
        return []
    return [
        f"this machine was busy: plain decoding varied from {min(rates):.1f} to {max(rates):.1f} tokens/s; "
        "run it again when it is quiet"
    ]


def near_tie(run: dict[str, Any]) -> bool:
    """Whether the first difference of the outputs is at two logits so close that rounding orders them."""
    return float(run["near_tie_gap"]) < NEAR_TIE


def say(text: str) -> None:
    print(f"\n{text}", flush=True)
