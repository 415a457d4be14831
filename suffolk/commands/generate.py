"""Generate text with drafts: the same text as without them, sooner. Text goes to stdout, the report to stderr."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datastore.errors import InvalidArgument, NotFound
from datastore.retriever import Retriever
from serving.decoding.prompt import read_prompt
from serving.decoding.settings import VERIFICATIONS, SamplingSettings
from serving.drafters.choose import MODELS, NAMES, make_drafter
from suffolk.commands.filled import filled
from suffolk.commands.generate_remotely import generate_remotely
from suffolk.commands.generation_output import choose_colours, report_lines, show
from suffolk.commands.model_options import (
    add_device_options,
    add_draft_options,
    load_target,
    names_models,
    opened_stores,
    read_limits,
    read_max_nodes,
    read_model_sources,
)
from suffolk.commands.output_file import require_folder

if TYPE_CHECKING:
    from serving.decoding.cost_model import CostModel
    from serving.decoding.drafter import Drafter
    from serving.decoding.engine import Engine
    from serving.decoding.generation import Generation
    from serving.decoding.target import Target
    from serving.drafters.limits import Limits

EPILOG = """examples:
  suffolk generate --model MODEL_FOLDER "Write a sort function."
  suffolk generate --model MODEL_FOLDER --datastore STORE --compare-plain < prompt.txt
  suffolk generate --model MODEL_FOLDER --datastore grpc://127.0.0.1:7700/STORE --temperature 0.7 --seed 1 "A poem."
  suffolk generate --model MODEL_FOLDER --draft-model SMALLER_MODEL_FOLDER "Write a sort function."
  suffolk generate --model MODEL_FOLDER --head HEAD_FOLDER --compare-plain "Write a sort function."
  suffolk generate --model MODEL_FOLDER --draft-model SMALLER_MODEL_FOLDER --levels "prompt-lookup:4 > draft-model:6" "A poem."
  suffolk generate --worker grpc://127.0.0.1:7710 "Write a sort function."
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``suffolk generate``."""
    parser.epilog = EPILOG
    parser.add_argument("prompt", nargs="?", metavar="PROMPT", help="the prompt (default: read from stdin)")
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--model", type=filled, help="model folder in the Hugging Face layout, or hub name")
    place.add_argument("--worker", metavar="URL", help="let 'suffolk worker' at grpc://HOST:PORT do it")
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--chat", action="store_true", help="wrap the prompt in the model's chat template (default if it has one)"
    )
    form.add_argument("--raw", action="store_true", help="continue the prompt as it is")
    _add_drafting(parser.add_argument_group("drafting"))
    _add_verification(parser.add_argument_group("verification"))
    _add_sampling(parser.add_argument_group("sampling and ends"))
    add_device_options(parser.add_argument_group("device"))
    output = parser.add_argument_group("output")
    output.add_argument(
        "--colour", choices=("auto", "always", "never"), default="auto", help="colour accepted tokens by source"
    )
    output.add_argument(
        "--compare-plain", action="store_true", help="decode without drafts too and compare text and speed"
    )
    output.add_argument("--stats-json", type=Path, metavar="FILE", help="write the report as JSON")
    output.add_argument(
        "--logprobs",
        type=int,
        metavar="N",
        help="add each token's log-probability and N alternatives (0..20) to --stats-json",
    )


def run(args: argparse.Namespace) -> int:
    """Generate; returns the exit code."""
    settings = SamplingSettings(
        max_new_tokens=args.max_new_tokens,
        temperature=args.temperature,
        top_k=args.top_k,
        top_p=args.top_p,
        min_p=args.min_p,
        repetition_penalty=args.repetition_penalty,
        presence_penalty=args.presence_penalty,
        frequency_penalty=args.frequency_penalty,
        seed=args.seed,
        stop=tuple(args.stop),
        ignore_eos=args.ignore_eos,
        logprobs=args.logprobs,
        **_verification(args),
    )
    if any(not word.strip() for word in args.bad_words):
        raise InvalidArgument("--bad-words is empty; name a text that must not be generated")
    if args.logprobs is not None and args.stats_json is None:
        raise InvalidArgument(f"--logprobs {args.logprobs} goes into the JSON report only; add --stats-json FILE")
    limits, max_nodes = read_limits(args), read_max_nodes(args)
    name = _drafter(args)
    prompt = _read_stdin() if args.prompt is None else args.prompt
    read_prompt(prompt)  # refuse what no tokenizer takes, now
    require_folder("--stats-json", args.stats_json)
    logging.basicConfig(level=logging.WARNING, format="suffolk: %(message)s")
    if name == "none" and args.costs is not None:
        raise InvalidArgument(f"--costs {args.costs} is of no use with --drafter none; leave one of them out")
    if args.worker is not None:
        return _finish(args, generate_remotely(args, settings, prompt))
    uses_stores = args.datastore is not None and name in ("datastore", "hybrid", "hierarchy")
    with opened_stores([args.datastore] if uses_stores else [], args.deadline_ms, limits, args.model) as stores:
        if name not in MODELS and not names_models(args):
            make_drafter(name, 1, stores)  # refuse what is missing before a model is loaded
        target = load_target(args, len(prompt) // 2 + settings.max_new_tokens)
        settings = replace(settings, bad_words=_bad_words(target, args.bad_words))
        ids = _encode(target, prompt, args)
        models = _load_models(args, target, len(ids) + settings.max_new_tokens + max_nodes, stores, limits)
        drafter = make_drafter(name, target.vocab_size, stores, limits, models)
        return _generate(args, settings, name, drafter, max_nodes, target, ids)


def _drafter(args: argparse.Namespace) -> str:
    """The name of the drafter. Raises InvalidArgument if it needs a network that is not named, or one is named that it is not."""
    kinds: list[str] = []
    if names_models(args):
        if args.worker is not None:
            raise InvalidArgument(
                f"--worker {args.worker} has its own drafters; leave --draft-model, --exit-layers, --head and --levels out"
            )
        kinds = read_model_sources(args).kinds()
    several = "hierarchy" if kinds == ["hierarchy"] else "hybrid"
    name = str(args.drafter or (several if args.datastore or kinds else "prompt-lookup"))
    unused = [kind for kind in kinds if name not in (kind, "hybrid")]
    if unused:
        raise InvalidArgument(f"drafter {name} does not need what was given for {unused[0]}; leave one of them out")
    if args.worker is None and name in MODELS and not kinds:
        raise InvalidArgument(f"--drafter {name} needs a model; add {MODELS[name]}")
    return name


def _load_models(
    args: argparse.Namespace, target: Target, capacity: int, stores: list[Retriever], limits: Limits
) -> list[Drafter]:
    if not names_models(args):
        return []
    from serving.drafters.load import load_models

    return load_models(target, read_model_sources(args), 1, capacity, stores, limits)


def _verification(args: argparse.Namespace) -> dict[str, Any]:
    """The settings of ``--verification``. Raises InvalidArgument for thresholds of another than typical."""
    thresholds = {name: getattr(args, name) for name in ("epsilon", "delta") if getattr(args, name) is not None}
    for name, value in thresholds.items():
        if args.verification != "typical":
            raise InvalidArgument(
                f"--{name} {value:g} does nothing under --verification {args.verification}; leave it out, or add "
                "--verification typical"
            )
    return {"verification": args.verification, **thresholds}


def _generate(
    args: argparse.Namespace,
    settings: SamplingSettings,
    name: str,
    drafter: Drafter | None,
    max_nodes: int,
    target: Target,
    ids: list[int],
) -> int:
    from serving.decoding.cost_store import find_costs
    from serving.decoding.request import Request

    Request(0, target, ids, settings)  # refuse what cannot run before costs are measured
    drafters = {} if drafter is None else {name: drafter}
    found = find_costs(target, 1, args.costs) if drafters else None
    costs = None if found is None else found.costs
    with _engine(target, drafters, len(ids), settings, max_nodes, costs) as engine:
        generation = show(engine.generate(ids, settings, name, max_nodes), choose_colours(args.colour))
    report: dict[str, Any] = {"model": args.model, "drafter": name} | generation.stats.to_dict()
    report["tokens_generated"] = generation.tokens
    if settings.logprobs is not None:
        report["logprobs"] = [asdict(each) for each in generation.log_probabilities]
    if found is not None:
        report["costs"] = {"source": found.source, "ignored": found.ignored, "drifts": found.costs.drifts}
    if args.compare_plain:
        report["plain"] = _compare(target, ids, settings, generation)
    return _finish(args, report)


def _read_stdin() -> str:
    if sys.stdin is None:
        raise InvalidArgument("there is no PROMPT, and stdin is closed; give one of them")
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"the prompt cannot be read: {error}; convert it to {error.encoding}") from None


def _finish(args: argparse.Namespace, report: dict[str, Any]) -> int:
    report["verification"] = args.verification
    print("\n".join(report_lines(report)), file=sys.stderr)
    if args.stats_json is not None:
        _write_json(args.stats_json, report)
    return 0


def _engine(
    target: Target,
    drafters: Mapping[str, Drafter],
    prompt_tokens: int,
    settings: SamplingSettings,
    max_nodes: int,
    costs: CostModel | None = None,
) -> Engine:
    """An engine for one request of that size at a time."""
    from serving.decoding.engine import Engine

    room = settings.max_new_tokens
    if target.context_length is not None:
        room = max(0, min(room, target.context_length - prompt_tokens))
    return Engine(
        target, drafters, costs, slots=1, capacity=prompt_tokens + room + (max_nodes if drafters else 1), queue=0
    )


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


def _encode(target: Target, prompt: str, args: argparse.Namespace) -> list[int]:
    from serving.decoding.prompt import encode_chat, encode_text, has_template

    if args.chat or (has_template(target) and not args.raw):
        return encode_chat(target, [("user", prompt)])
    return encode_text(target, prompt)


def _bad_words(target: Target, texts: list[str]) -> tuple[tuple[int, ...], ...]:
    """The token ids of each text, at the start of a word and inside one (as transformers advises for ``bad_words_ids``)."""
    forms = [form for text in texts for form in (text.strip(), " " + text.strip())]
    encoded = [tuple(target.tokenizer(form, add_special_tokens=False)["input_ids"]) for form in forms]
    return tuple(dict.fromkeys(encoded))


def _write_json(path: Path, report: dict[str, Any]) -> None:
    try:
        path.write_text(json.dumps(report, indent=2) + "\n")
    except OSError as error:
        raise NotFound(
            f"--stats-json {path}: cannot be written ({error.strerror}); name a file in a folder that exists"
        ) from error


def _add_drafting(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--datastore", type=filled, metavar="STORE", help="folder of a datastore, or grpc://HOST:PORT/NAME"
    )
    group.add_argument(
        "--drafter",
        choices=NAMES,
        help="who proposes (default: hybrid, all sources in one tree; prompt-lookup where there is but that)",
    )
    add_draft_options(group)


def _add_verification(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--verification",
        choices=VERIFICATIONS,
        default="match",
        help="which drafted tokens are accepted. match: those that the model draws itself, so that drafts never change the text. "
        "rejection: speculative sampling, whose text is another of the same law; acts on drafters that sample chains: of "
        f"{', '.join(NAMES[1:])} redrafter and hierarchy alone, "
        "the others' trees are verified as by match. typical: LOSSY, all that are likely enough, so that the "
        "text depends on drafts and is not the model's law (default: %(default)s)",
    )
    group.add_argument(
        "--epsilon",
        type=float,
        metavar="P",
        help="of typical: tokens of a probability of at least min(epsilon, delta * exp(-entropy)) are accepted "
        f"(default: {SamplingSettings.__dataclass_fields__['epsilon'].default})",
    )
    group.add_argument(
        "--delta",
        type=float,
        metavar="D",
        help=f"of typical, as above (default: {SamplingSettings.__dataclass_fields__['delta'].default})",
    )


def _add_sampling(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--max-new-tokens", type=int, default=256, help="longest text, in tokens (default: %(default)s)")
    group.add_argument("--temperature", type=float, default=0.0, help="0: greedy (default: %(default)s)")
    group.add_argument("--top-k", type=int, default=0, help="0: no limit (default: %(default)s)")
    group.add_argument("--top-p", type=float, default=1.0, help="1: no limit (default: %(default)s)")
    group.add_argument(
        "--min-p",
        type=float,
        default=0.0,
        help="least share of the likeliest token's probability; 0: no limit (default: %(default)s)",
    )
    group.add_argument(
        "--repetition-penalty",
        type=float,
        default=1.0,
        help="above 1: make tokens of prompt and text less likely; 1: off (default: %(default)s)",
    )
    group.add_argument(
        "--presence-penalty",
        type=float,
        default=0.0,
        help="taken off the logit of each token generated before; -2..2 (default: %(default)s)",
    )
    group.add_argument(
        "--frequency-penalty",
        type=float,
        default=0.0,
        help="taken off the logit for each time the token was generated before; -2..2 (default: %(default)s)",
    )
    group.add_argument(
        "--bad-words",
        action="append",
        default=[],
        metavar="STR",
        help="never generate this text as its own tokens, with or without a space in front; may be repeated",
    )
    group.add_argument(
        "--seed", type=int, default=0, help="same seed, same text, whatever drafts (default: %(default)s)"
    )
    group.add_argument(
        "--stop", action="append", default=[], metavar="STR", help="end before this text; may be repeated"
    )
    group.add_argument("--ignore-eos", action="store_true", help="do not end at the model's end-of-text tokens")
