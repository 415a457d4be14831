"""Measures passes and decoding on a GPU, and writes all tables into one page, beside an older commit's tables if wanted.

``passes`` compares kinds of passes: times with 1 to 64 rows and several contexts, passes that read prompts while other requests
decode, kernels of a pass, starts, and how many rows and drafted texts equal plain ones bit for bit. ``decode`` runs ``suffolk
bench decode`` (greedy with transformers' generate, at temperature 0.7, and in fp32), ``bench batch`` and ``profile``.

Each measurement is a process of its own, in this checkout and then in the older one. The folder gets their JSON files, and
tables.md. What a checkout cannot run is stated there. Exits with 1 if this checkout cannot run something.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from research.command import command_parser, run_command
from research.gpu_tables import Results, page
from suffolk.benchmarks.report import describe_machine
from suffolk.datastore.errors import InvalidArgument, NotFound, Unsupported
from suffolk.datastore.files import write_json, write_text
from suffolk.serving.decoding.engine.model.passes import KINDS

PARTS = ("passes", "decode")
ROOT = Path(__file__).resolve().parents[1]
_FEW = 4
"""Prompts of each file for the measurement in fp32."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """A process: its ``name``, its arguments for Python, and what it reads from its input."""

    name: str
    arguments: tuple[str, ...]
    script: str | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(args: argparse.Namespace) -> int:
    """Measure each checkout, and write the page; return the exit code."""
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        raise Unsupported(
            "this machine has no CUDA device; run this study on a machine with one, or try it with --device cpu"
        )
    for path in args.prompts:
        if not Path(path).exists():
            raise NotFound(f"prompts {path}: No such file or directory; name a .jsonl file or a folder of them")
    output = Path(args.output).resolve()
    output.mkdir(parents=True, exist_ok=True)
    checkouts = [ROOT, *([] if args.older is None else [find_checkout(args.older, output)])]
    found = []
    for number, checkout in enumerate(checkouts):
        folder = output / ("older" if number else "new")
        folder.mkdir(exist_ok=True)
        found.append(_measure(checkout, folder, args))
    machine = describe_machine()
    write_json(output / "machine.json", machine)
    write_text(output / "tables.md", text := page(found, ", ".join(machine["accelerators"]) or machine["cpu"]))
    print(text)
    return 1 if found[0].problems else 0


def find_checkout(older: str, output: Path) -> Path:
    """The checkout ``older``: a folder, or a commit. A commit gets a git worktree in ``output``, with its core
    compiled.

    Raises:
        InvalidArgument: no such folder or commit, or its core cannot be compiled.
    """
    folder = Path(older).resolve() if Path(older).is_dir() else output / f"checkout-{older}"
    if not folder.exists():
        _call("git", "-C", str(ROOT), "worktree", "add", "--detach", str(folder), older)
    if not list((folder / "datastore").glob("_native*.so")):
        print(f"{folder}: compiling its core", file=sys.stderr)
        _call(sys.executable, "setup.py", "build_ext", "--inplace", folder=folder)
    return folder


def _call(*command: str, folder: Path | None = None) -> None:
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise InvalidArgument(f"--older: {' '.join(command[:4])} failed ({_last_line(ended.stderr)})")


def _measure(checkout: Path, folder: Path, args: argparse.Namespace) -> Results:
    """Run all measurements in ``checkout``. Their first starts are cold: caches of compiled code are new."""
    documents: dict[str, Any] = {}
    problems: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as caches:
        environment = os.environ | {"PYTHONPATH": str(checkout), "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor"}
        environment |= {"TRITON_CACHE_DIR": f"{caches}/triton"}
        for each in _measurements(args, folder):
            print(f"{checkout.name}: {each.name}", file=sys.stderr, flush=True)
            ended = subprocess.run(
                [sys.executable, *each.arguments],
                cwd=checkout,
                env=environment,
                input=_adapted(each.script, checkout),
                capture_output=True,
                text=True,
                check=False,
            )
            file = folder / f"{each.name}.json"
            if ended.returncode:
                problems[each.name] = _last_line(ended.stderr)
                continue
            if each.script is not None:
                file.write_text(ended.stdout.splitlines()[-1])
            documents[each.name] = json.loads(file.read_text())
    return Results(_commit(checkout), documents, problems)


def _adapted(script: str | None, checkout: Path) -> str | None:
    """``script`` with the names that modules have in ``checkout``. Before 83afb269, the engine lay in ``serving``."""
    if script is None or (checkout / "serving" / "decoding").is_dir():
        return script
    return script.replace("suffolk.serving.decoding.", "suffolk.serving.")


def _measurements(args: argparse.Namespace, folder: Path) -> Iterator[Measurement]:
    model, *prompts = map(_path, (args.model, *args.prompts))
    if "passes" in args.parts:
        script = (ROOT / "research" / "gpu_passes.py").read_text()
        options = {
            "model": model,
            "prompts": prompts,
            "limit": int(args.limit),
            "kinds": args.kinds,
            "quick": args.quick,
        }
        options |= {"dtype": args.dtype, "device": args.device}
        for name in ("passes", "start"):
            yield Measurement(name, ("-", json.dumps(options | {"start_only": name == "start"})), script)
    if "decode" not in args.parts:
        return
    loaded = ("--model", model, "--device", args.device)
    tokens = ("--max-new-tokens", args.max_new_tokens)
    asked = (
        *loaded,
        "--prompts",
        *prompts,
        *tokens,
        *(("--datastore", _path(args.datastore)) if args.datastore else ()),
    )
    typed = ("--dtype", args.dtype)
    rivals = ("--transformers", *(("--assistant", _path(args.assistant)) if args.assistant else ()))
    batches = ("1", "2", "4") if args.quick else ("1", "2", "4", "8", "16", "32", "64")
    slots = ("--slots", "2", "--contexts", "64", "--rounds", "1") if args.quick else ("--slots", "32")

    def bench(name: str, kind: str, *more: str, limit: str = args.limit) -> Measurement:
        file = ("--json", str(folder / f"{name}.json"))
        return Measurement(name, ("-m", "suffolk", "bench", kind, *asked, "--limit", limit, *more, *file))

    yield bench("decode", "decode", *typed, *rivals)
    yield bench("decode-0.7", "decode", *typed, "--temperature", "0.7")
    yield bench("decode-fp32", "decode", "--dtype", "float32", limit=str(min(_FEW, int(args.limit))))
    yield bench("batch", "batch", *typed, "--batches", *batches, "--rounds", "2")
    yield Measurement(
        "costs", ("-m", "suffolk", "profile", *loaded, *typed, *slots, "--output", str(folder / "costs.json"))
    )


def _path(name: str) -> str:
    """An existing path as an absolute one, because measurements run in other folders."""
    return str(Path(name).resolve()) if Path(name).exists() else name


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1][:300]


def _commit(checkout: Path) -> str:
    ended = subprocess.run(
        ["git", "-C", str(checkout), "describe", "--always", "--dirty=+changes", "--exclude=*"],
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.stdout.strip() or checkout.name


def _parser() -> argparse.ArgumentParser:
    examples = (
        "--model MODEL --prompts prompts/ --output results/ --parts passes decode",
        "--model MODEL --datastore STORE --prompts prompts/ --output results/ --older 8a8f8a72",
        "--model MODEL --prompts prompts/ --output results/ --device cpu --quick --limit 1 --max-new-tokens 8",
    )
    parser = command_parser("gpu", __doc__, *examples)
    add = parser.add_argument
    add("--model", required=True, help="model folder in the Hugging Face layout, or hub name")
    add("--datastore", metavar="STORE", help="folder of a datastore, or grpc://HOST:PORT/NAME (default: none)")
    add("--assistant", help="draft model for transformers' assisted generation")
    add("--prompts", required=True, nargs="+", metavar="PATH", help=".jsonl files or folders")
    add("--parts", nargs="+", choices=PARTS, default=PARTS, help="what is measured (default: %(default)s)")
    add(
        "--kinds",
        nargs="+",
        choices=KINDS,
        default=("captured", "graph", "packed"),
        help="kinds of passes (default: %(default)s)",
    )
    add("--older", metavar="COMMIT", help="an older commit to measure beside this one, or the folder of its checkout")
    add("--output", default=".", help="folder for the results (default: here)")
    add("--limit", default="20", help="prompts of each file (default: %(default)s)")
    add("--max-new-tokens", default="128", metavar="N", help="longest answer, in tokens (default: %(default)s)")
    add("--dtype", default="bfloat16", help="auto, float32, bfloat16, float16 or float64 (default: %(default)s)")
    add("--device", default="cuda", help="cuda, cuda:1 ..., or cpu to try the command (default: %(default)s)")
    add("--quick", action="store_true", help="few passes and batch sizes, to try the command")
    return parser


if __name__ == "__main__":
    sys.exit(main())
