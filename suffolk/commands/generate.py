"""Generate text with drafts: the same text as without them, sooner. Text goes to stdout, the report to stderr."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datastore.errors import InvalidArgument, NotFound
from datastore.retriever import Retriever
from datastore.tokenizer import fingerprint, load_tokenizer
from serving.decoding.settings import SamplingSettings
from serving.drafters.choose import NAMES, make_drafter, require_match
from serving.drafters.limits import Limits

if TYPE_CHECKING:
    from serving.decoding.drafter import Drafter
    from serving.decoding.engine import Engine
    from serving.decoding.generation import Generation
    from serving.decoding.target import Target

EPILOG = """examples:
  suffolk generate --model MODEL_FOLDER "Write a sort function."
  suffolk generate --model MODEL_FOLDER --datastore STORE --compare-plain < prompt.txt
  suffolk generate --model MODEL_FOLDER --datastore grpc://127.0.0.1:7700/STORE --temperature 0.7 --seed 1 "A poem."
"""

PALETTE = {0: "", 1: "\x1b[38;5;32m", 2: "\x1b[38;5;208m", 3: "\x1b[38;5;36m"}
"""Colours by source bits that colour-blind readers can tell apart (after Okabe and Ito): datastore blue, prompt lookup
orange, both green."""
OTHER = "\x1b[38;5;175m"
RESET = "\x1b[0m"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``suffolk generate``."""
    parser.epilog = EPILOG
    parser.add_argument("prompt", nargs="?", metavar="PROMPT", help="the prompt (default: read from stdin)")
    parser.add_argument("--model", required=True, help="model folder in the Hugging Face layout, or hub name")
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--chat", action="store_true", help="wrap the prompt in the model's chat template (default if it has one)"
    )
    form.add_argument("--raw", action="store_true", help="continue the prompt as it is")
    _add_drafting(parser.add_argument_group("drafting"))
    _add_sampling(parser.add_argument_group("sampling and ends"))
    _add_device(parser.add_argument_group("device"))
    output = parser.add_argument_group("output")
    output.add_argument(
        "--colour", choices=("auto", "always", "never"), default="auto", help="colour accepted tokens by source"
    )
    output.add_argument(
        "--compare-plain", action="store_true", help="decode without drafts too and compare text and speed"
    )
    output.add_argument("--stats-json", type=Path, metavar="FILE", help="write the report as JSON")


def run(args: argparse.Namespace) -> int:
    """Generate; returns the exit code."""
    settings = SamplingSettings(
        args.max_new_tokens, args.temperature, args.top_k, args.top_p, args.seed, tuple(args.stop), args.ignore_eos
    )
    limits = Limits(args.max_match, args.min_match, args.max_depth)
    name = args.drafter or ("hybrid" if args.datastore else "prompt-lookup")
    prompt = sys.stdin.read() if args.prompt is None else args.prompt
    prompt = prompt.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if args.stats_json is not None and not args.stats_json.absolute().parent.is_dir():
        raise NotFound(f"--stats-json {args.stats_json}: there is no such folder; name a file in a folder that exists")
    logging.basicConfig(level=logging.WARNING, format="suffolk: %(message)s")
    with _opened(args, limits, name) as retriever:
        if name in ("datastore", "hybrid"):
            make_drafter(name, 1, retriever)  # refuse what is missing before a model is loaded
        target = _load(args, len(prompt) // 2 + settings.max_new_tokens)
        return _generate(args, settings, limits, name, target, _encode(target, prompt, args), retriever)


def _generate(
    args: argparse.Namespace,
    settings: SamplingSettings,
    limits: Limits,
    name: str,
    target: Target,
    ids: list[int],
    retriever: Retriever | None,
) -> int:
    drafter = make_drafter(name, target.vocab_size, retriever, limits)
    drafters = {} if drafter is None else {name: drafter}
    with _engine(target, drafters, len(ids), settings, args.max_nodes) as engine:
        generation = _stream(engine.generate(ids, settings, name, args.max_nodes), _coloured(args.colour))
    report: dict[str, Any] = {"model": args.model, "drafter": name} | generation.stats.to_dict()
    report["tokens_generated"] = generation.tokens
    if args.compare_plain:
        report["plain"] = _compare(target, ids, settings, generation)
    print("\n".join(_lines(report)), file=sys.stderr)
    if args.stats_json is not None:
        _write_json(args.stats_json, report)
    return 0


def _engine(
    target: Target, drafters: Mapping[str, Drafter], prompt_tokens: int, settings: SamplingSettings, max_nodes: int
) -> Engine:
    """An engine for one request of that size at a time."""
    from serving.decoding.engine import Engine

    room = settings.max_new_tokens
    if target.context_length is not None:
        room = max(0, min(room, target.context_length - prompt_tokens))
    return Engine(target, drafters, slots=1, capacity=prompt_tokens + room + (max_nodes if drafters else 1), queue=0)


def _stream(generation: Generation, coloured: bool) -> Generation:
    try:
        for step in generation:
            sys.stdout.write("".join(_paint(text, source) if coloured else text for text, source in step.pieces))
            sys.stdout.flush()
    finally:
        generation.cancel()
        with contextlib.suppress(BrokenPipeError):
            print(flush=True)
    return generation


def _compare(target: Target, ids: list[int], settings: SamplingSettings, drafted: Generation) -> dict[str, Any]:
    from serving.decoding.near_tie import first_difference

    with _engine(target, {}, len(ids), settings, 1) as engine:
        plain = engine.generate(ids, settings)
        for _ in plain:
            pass
    difference = first_difference(target, ids, plain.tokens, drafted.tokens, settings)
    compared = {
        "tokens": plain.stats.tokens,
        "tokens_per_second": plain.stats.tokens_per_second,
        "identical": difference is None,
        "speed_up": drafted.stats.tokens_per_second / plain.stats.tokens_per_second if plain.stats.steps else 1.0,
    }
    return compared if difference is None else compared | {"position": difference.position, "gap": difference.gap}


def _lines(report: dict[str, Any]) -> list[str]:
    """The report for people."""
    seconds = report["seconds"]
    lines = [
        f"tokens    {report['tokens']} ({report['finish']}), {report['tokens_per_second']:.1f} tokens/s "
        f"behind a prompt of {report['prompt_tokens']} ({seconds['prefill']:.2f} s)",
        f"M         {report['mean_generated_length']:.2f} tokens per target pass, {report['steps']} passes",
        f"accepted  {report['accepted']} drafted tokens{_by_source(report['accepted_by_source'])}",
        f"drafts    {report['proposals']} asked for, {report['nodes_verified']} nodes verified, {_missed(report['missed'])}",
        "time      " + ", ".join(f"{part} {spent:.2f} s" for part, spent in seconds.items() if part != "prefill"),
    ]
    plain = report.get("plain")
    if plain is not None:
        gap = (
            ""
            if plain["identical"]
            else f" from token {plain['position']} on, where the target's scores differ by {plain['gap']:.2g}"
        )
        lines.append(
            f"plain     {plain['tokens_per_second']:.1f} tokens/s; speed-up {plain['speed_up']:.2f}; "
            f"output identical = {'yes' if plain['identical'] else 'no' + gap}"
        )
    return lines


def _by_source(counts: dict[str, int]) -> str:
    shown = [f"{_source_name(int(bits))} {count}" for bits, count in sorted(counts.items())]
    return f": {', '.join(shown)}" if shown else ""


def _missed(missed: dict[str, int]) -> str:
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(missed.items()))
    return f"{sum(missed.values())} missed" + (f" ({reasons})" if reasons else "")


def _source_name(bits: int) -> str:
    from datastore.draft_tree import Source

    return "+".join(source.name.lower().replace("_", "-") for source in Source if source & bits and source.name)


def _paint(text: str, source: int) -> str:
    colour = PALETTE.get(source, OTHER)
    return f"{colour}{text}{RESET}" if colour else text


def _coloured(choice: str) -> bool:
    if choice == "auto" and (os.environ.get("NO_COLOR") or not sys.stdout.isatty()):
        return False
    if choice != "never":
        names = {1: "datastore", 2: "prompt lookup", 3: "both"}
        print("colours   target, " + ", ".join(_paint(names[bits], bits) for bits in names), file=sys.stderr)
    return choice != "never"


@contextlib.contextmanager
def _opened(args: argparse.Namespace, limits: Limits, name: str) -> Iterator[Retriever | None]:
    """The datastore of the command line, found to fit the model."""
    if args.datastore is None or name in ("none", "prompt-lookup"):
        yield None
        return
    retriever = _open_retriever(args.datastore, args.deadline_ms)
    try:
        require_match(retriever, args.datastore, limits, args.model, fingerprint(load_tokenizer(args.model)))
        yield retriever
    finally:
        retriever.close()


def _open_retriever(name: str, deadline_ms: float | None) -> Retriever:
    from serving.transport.url import is_url

    if deadline_ms is not None and not deadline_ms > 0:
        raise InvalidArgument(f"--deadline-ms is {deadline_ms}; it must be above 0")
    if is_url(name):
        from serving.draft_service.client import connect

        return connect(name, None if deadline_ms is None else deadline_ms / 1000)
    from datastore.datastore import open_datastore

    return open_datastore(name)


def _load(args: argparse.Namespace, cache_tokens: int) -> Target:
    import torch
    import transformers

    from serving.decoding.target import Target

    messages: Any = transformers.utils.logging
    messages.disable_progress_bar()
    messages.set_verbosity_error()
    if args.threads is not None:
        if args.threads < 1:
            raise InvalidArgument(f"--threads is {args.threads}; it must be 1 or more")
        torch.set_num_threads(args.threads)
    return Target.load(args.model, args.dtype, args.device, cache_tokens)


def _encode(target: Target, prompt: str, args: argparse.Namespace) -> list[int]:
    template = getattr(target.tokenizer, "chat_template", None)
    if args.chat and not template:
        raise InvalidArgument(f"model {args.model} has no chat template; leave --chat out")
    if template and not args.raw:
        messages = [{"role": "user", "content": prompt}]
        encoded = target.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)
        return list(encoded["input_ids"])
    return list(target.tokenizer(prompt)["input_ids"])


def _write_json(path: Path, report: dict[str, Any]) -> None:
    try:
        path.write_text(json.dumps(report, indent=2) + "\n")
    except OSError as error:
        raise NotFound(
            f"--stats-json {path}: cannot be written ({error.strerror}); name a file in a folder that exists"
        ) from error


def _add_drafting(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--datastore", metavar="STORE", help="folder of a datastore, or grpc://HOST:PORT/NAME")
    group.add_argument(
        "--drafter", choices=NAMES, help="who proposes (default: hybrid with a datastore, else prompt-lookup)"
    )
    group.add_argument(
        "--deadline-ms", type=float, help="time a remote draft may take (default: the URL's, else the client's)"
    )
    group.add_argument(
        "--max-nodes", type=int, default=64, help="largest tree; costs decide how much is used (default: %(default)s)"
    )
    group.add_argument("--max-match", type=int, default=16, help="longest match, in tokens (default: %(default)s)")
    group.add_argument("--min-match", type=int, default=1, help="shortest match, in tokens (default: %(default)s)")
    group.add_argument("--max-depth", type=int, default=10, help="depth of drafts, in tokens (default: %(default)s)")


def _add_sampling(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--max-new-tokens", type=int, default=256, help="longest text, in tokens (default: %(default)s)")
    group.add_argument("--temperature", type=float, default=0.0, help="0: greedy (default: %(default)s)")
    group.add_argument("--top-k", type=int, default=0, help="0: no limit (default: %(default)s)")
    group.add_argument("--top-p", type=float, default=1.0, help="1: no limit (default: %(default)s)")
    group.add_argument(
        "--seed", type=int, default=0, help="same seed, same text, whatever drafts (default: %(default)s)"
    )
    group.add_argument(
        "--stop", action="append", default=[], metavar="STR", help="end before this text; may be repeated"
    )
    group.add_argument("--ignore-eos", action="store_true", help="do not end at the model's end-of-text tokens")


def _add_device(group: argparse._ArgumentGroup) -> None:
    dtypes = ("auto", "float32", "bfloat16", "float16", "float64")
    group.add_argument("--dtype", choices=dtypes, default="auto", help="auto: as stored (default: %(default)s)")
    group.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 ... (default: %(default)s)")
    group.add_argument("--threads", type=int, help="CPU threads (default: torch's choice)")
