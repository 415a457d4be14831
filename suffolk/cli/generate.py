"""Generate text with drafts: the same text as without them, sooner. Text goes to stdout, the report to stderr."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from suffolk.benchmarks.json_file import write_json
from suffolk.cli.drafter_options import read_drafter_config
from suffolk.cli.generate_options import add_generate_options
from suffolk.cli.generate_remotely import generate_remotely
from suffolk.cli.generation_output import choose_colours, report_lines, show
from suffolk.cli.model_options import (
    kept_calibration,
    load_target,
    opened_stores,
    read_limits,
    read_max_nodes,
    require_costs,
    require_threads,
)
from suffolk.cli.output_file import require_folder
from suffolk.cli.record_option import require_record
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.drafters.hybrid.drafter import HybridDrafter
from suffolk.serving.drafters.hybrid.explanation import Explanation, summary
from suffolk.serving.drafters.neural.tree_bounds import rows_behind
from suffolk.serving.drafters.registry import NONE, find
from suffolk.serving.engine.loop.prompt import read_prompt
from suffolk.serving.engine.sampling.settings import SamplingSettings

if TYPE_CHECKING:
    from suffolk.serving.engine.costs.cost_model import CostModel
    from suffolk.serving.engine.loop.drafter import Drafter
    from suffolk.serving.engine.loop.engine import Engine
    from suffolk.serving.engine.loop.generation import Generation
    from suffolk.serving.engine.model.target import Target

_HYBRID = "add --datastore, --draft-model, --head or --exit-layers, or leave --explain out"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``suffolk generate``."""
    add_generate_options(parser)


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
    require_record(args.record)
    logging.basicConfig(level=logging.WARNING, format="suffolk: %(message)s")
    if name == NONE and args.costs is not None:
        raise InvalidArgument(f"--costs {args.costs} is of no use with --drafter none; leave one of them out")
    if args.worker is not None:
        return _finish(args, generate_remotely(args, settings, prompt))
    require_threads(args)
    require_costs(args.costs)
    uses_stores = name != NONE and find(name).reads_datastores
    if args.explain and name != "hybrid":
        raise InvalidArgument(
            f"--explain is of hybrid, which decides in each step what to draft, and not of {name}; {_HYBRID}"
        )
    with (
        kept_calibration(args.calibration) as calibration,
        opened_stores(args.datastore if uses_stores else [], args.deadline_ms, limits, args.model) as stores,
    ):
        from suffolk.serving.drafters.load import load_drafters, make_drafter

        config = read_drafter_config(args)
        if not config.parts():
            make_drafter(name, 1, stores)  # refuse what is missing before a model is loaded
        target = load_target(args, len(prompt) // 2 + settings.max_new_tokens)
        settings = replace(settings, bad_words=_bad_words(target, args.bad_words))
        ids = _encode(target, prompt, args)
        capacity = len(ids) + settings.max_new_tokens + rows_behind(max_nodes)
        models = load_drafters(target, config, 1, capacity, stores, limits, calibration)
        drafter = make_drafter(name, target.vocab_size, stores, limits, models, calibration)
        return _generate(args, settings, name, drafter, max_nodes, target, ids)


def _drafter(args: argparse.Namespace) -> str:
    """The name of the drafter. Raises InvalidArgument if it needs a network that is not named, or one is named that it is not."""
    config = read_drafter_config(args)
    if args.worker is not None and config.options:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in config.options)
        raise InvalidArgument(f"--worker {args.worker} has its own drafters; leave {flags} out")
    loaded = list(config.parts()) if args.worker is None else []
    several = "hierarchy" if loaded == ["hierarchy"] else "hybrid"
    name = str(args.drafter or (several if args.datastore or loaded else "prompt-lookup"))
    unused = [each for each in loaded if name not in (each, "hybrid")]
    if unused:
        raise InvalidArgument(f"drafter {name} does not need what was given for {unused[0]}; leave one of them out")
    if args.worker is None and name != NONE and find(name).needs_option and not loaded:
        raise InvalidArgument(f"--drafter {name} needs a model; add {find(name).usage}")
    return name


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
    from suffolk.serving.engine.costs.cost_store import find_costs
    from suffolk.serving.engine.loop.request import Request
    from suffolk.serving.replay.recorder import opened_recorder

    Request(0, target, ids, settings)  # refuse what cannot run before costs are measured
    drafters = {} if drafter is None else {name: drafter}
    explanation = Explanation()
    if args.explain and isinstance(drafter, HybridDrafter):
        drafter.explain(explanation)
    found = find_costs(target, 1, args.costs) if drafters else None
    costs = None if found is None else found.costs
    with (
        opened_recorder(args.record, target, args.model) as recorder,
        _engine(target, drafters, len(ids), settings, max_nodes, costs) as engine,
    ):
        request = engine.generate(ids, settings, name, max_nodes)
        generation = show(request, choose_colours(args.colour))
        if recorder is not None:
            recorder.add(generation, "chat" if _is_chat(target, args) else "text")
    if args.explain:
        lines = [*(step.line() for step in explanation.steps), *summary(explanation.steps)]
        print("\n".join(lines), file=sys.stderr)
    report: dict[str, Any] = {"model": args.model, "drafter": name} | generation.stats.to_dict()
    report["tokens_generated"] = generation.tokens
    if settings.logprobs is not None:
        report["logprobs"] = [asdict(each) for each in generation.log_probabilities]
    if found is not None:
        report["costs"] = {"source": found.source, "ignored": found.ignored, "drifts": engine.drifts}
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
        write_json(args.stats_json, report)
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
    from suffolk.serving.engine.loop.engine import Engine

    room = settings.max_new_tokens
    if target.context_length is not None:
        room = max(0, min(room, target.context_length - prompt_tokens))
    capacity = prompt_tokens + room + (rows_behind(max_nodes) if drafters else 1)
    return Engine(target, drafters, costs, slots=1, capacity=capacity, queue=0)


def _compare(target: Target, ids: list[int], settings: SamplingSettings, drafted: Generation) -> dict[str, Any]:
    from suffolk.serving.engine.sampling.near_tie import first_difference

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
    from suffolk.serving.engine.loop.prompt import encode_chat, encode_text

    return encode_chat(target, [("user", prompt)]) if _is_chat(target, args) else encode_text(target, prompt)


def _is_chat(target: Target, args: argparse.Namespace) -> bool:
    from suffolk.serving.engine.loop.prompt import has_template

    return bool(args.chat or (has_template(target) and not args.raw))


def _bad_words(target: Target, texts: list[str]) -> tuple[tuple[int, ...], ...]:
    """The token ids of each text, at the start of a word and inside one (as transformers advises for ``bad_words_ids``)."""
    forms = [form for text in texts for form in (text.strip(), " " + text.strip())]
    encoded = [tuple(target.tokenizer(form, add_special_tokens=False)["input_ids"]) for form in forms]
    return tuple(dict.fromkeys(encoded))
