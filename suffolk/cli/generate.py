"""Generate text with drafts. The text is the same as without drafts, and is generated faster. The
text goes to stdout, the report to stderr.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suffolk.cli.drafting import require_costs
from suffolk.cli.explanation import explain
from suffolk.cli.generate_options import EXAMPLES as EXAMPLES
from suffolk.cli.generate_options import Options
from suffolk.cli.generation_output import (
    TracedAnswer,
    generation_facts,
    report_lines,
    show,
    shown_settings,
    write_trace,
)
from suffolk.cli.model import load_target
from suffolk.cli.options.setting import settings_of
from suffolk.cli.output_file import kept_calibration, require_folder, require_record
from suffolk.cli.source_colours import Colours, print_sources
from suffolk.cli.stores import opened_stores
from suffolk.datastore.errors import Field, InvalidArgument, NotFound
from suffolk.datastore.files import read_bounded, write_json
from suffolk.datastore.retriever import Retriever
from suffolk.serving.decoding.drafters.hybrid.drafter import HybridDrafter
from suffolk.serving.decoding.drafters.hybrid.explanation import Explanation
from suffolk.serving.decoding.drafters.load import load_drafters, make_drafter
from suffolk.serving.decoding.drafters.neural.tree_bounds import rows_behind
from suffolk.serving.decoding.drafters.registry import NONE, find
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.cost_store import find_costs
from suffolk.serving.decoding.engine.loop.draft_options import DraftOptions
from suffolk.serving.decoding.engine.loop.drafter import Drafter
from suffolk.serving.decoding.engine.loop.prompt import encode_chat, encode_text, has_template, read_prompt
from suffolk.serving.decoding.engine.loop.step import Step
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings

LOCAL = (
    "compare_plain", "deadline_ms", "costs", "calibration", "explain", "trace", "record", "max_match", "min_match", "max_depth",
    "dtype", "device", "threads", "bad_words",
)  # fmt: skip
"""Settings that apply only to a local model, besides drafters' settings. A worker has its own settings."""


if TYPE_CHECKING:
    from suffolk.serving.decoding.engine.loop.engine import Engine
    from suffolk.serving.decoding.engine.loop.generation import Generation
    from suffolk.serving.decoding.engine.model.target import Target


def run(options: Options) -> None:
    if options.model is None and options.worker is None:
        raise InvalidArgument("--model or --worker is missing; give one of them")
    if options.logprobs is not None and options.stats_json is None:
        raise InvalidArgument(
            Field("logprobs"), f" {options.logprobs} is written only to the JSON report; add --stats-json FILE"
        )
    settings, limits = options.sampling(), options.limits()
    prompt = _read_stdin() if options.prompt is None else options.prompt
    read_prompt(prompt)  # refuse early a prompt that no tokenizer accepts
    draft_options = DraftOptions(
        prediction=_read_prediction(options.prediction), trace=options.trace is not None and options.model is not None
    )
    require_folder("--stats-json", options.stats_json)
    require_folder("--trace", options.trace)
    require_record(options.record)
    logging.basicConfig(level=logging.WARNING, format="suffolk: %(message)s")
    logging.getLogger("suffolk.serving.decoding.engine.costs").setLevel(logging.INFO)  # measuring takes seconds
    if options.model is None:
        _finish(options, generate_remotely(options, settings, prompt, draft_options))
        return
    name = options.drafter_name()
    if name == NONE and options.costs is not None:
        raise InvalidArgument(f"costs {options.costs}: --drafter none does not use them; leave one of them out")
    require_costs(options.costs)
    uses_stores = name != NONE and find(name).reads_datastores
    with (
        kept_calibration(options.calibration) as calibration,
        opened_stores(options.datastore if uses_stores else [], options.deadline_ms, limits, options.model) as stores,
    ):
        config = options.drafter_config()
        if not config.parts():
            make_drafter(name, 1, stores)  # report missing parts before a model is loaded
        target = load_target(options.model, options, len(prompt) // 2 + settings.max_new_tokens)
        settings = replace(settings, bad_words=_bad_words(target, options.bad_words))
        is_chat = _is_chat(target, options)
        ids = encode_chat(target, [("user", prompt)]) if is_chat else encode_text(target, prompt)
        capacity = len(ids) + settings.max_new_tokens + rows_behind(options.max_nodes)
        models = load_drafters(target, config, 1, capacity, stores, limits, calibration)
        drafter = make_drafter(name, target.vocab_size, stores, limits, models, calibration)
        _generate(options, settings, name, drafter, target, prompt, ids, stores, draft_options)


def _generate(
    options: Options,
    settings: SamplingSettings,
    name: str,
    drafter: Drafter | None,
    target: Target,
    prompt: str,
    ids: list[int],
    stores: list[Retriever],
    draft_options: DraftOptions,
) -> None:
    from suffolk.serving.decoding.engine.loop.request import Request
    from suffolk.serving.decoding.replay.recorder import opened_recorder

    Request(0, target, ids, settings, options=draft_options)  # refuse bad settings before costs are measured
    drafters = {} if drafter is None else {name: drafter}
    explanation = Explanation()
    if options.explain and isinstance(drafter, HybridDrafter):
        drafter.explain(explanation)
    found = find_costs(target, 1, options.costs) if drafters else None
    costs = None if found is None else found.costs
    with (
        opened_recorder(options.record, target, str(options.model)) as recorder,
        _engine(target, drafters, len(ids), settings, options.max_nodes, costs) as engine,
    ):
        generation = engine.generate(ids, settings, name, options.max_nodes, draft_options)
        steps = show(generation, Colours.choose(options.colour))
        if recorder is not None:
            recorder.add(generation, "chat" if _is_chat(target, options) else "text")
    if options.explain:
        lines = explain(target.tokenizer, steps, stores, explanation, Colours.choose(options.colour))
        print("\n".join(lines), file=sys.stderr)
    report = {"model": options.model, "drafter": name} | generation_facts(generation, settings)
    if found is not None:
        report["costs"] = {"source": found.source, "slowdown": engine.slowdown}
    answers = [TracedAnswer("With drafts", name, steps)]
    if options.compare_plain:
        report["plain"], plain_steps = _compare(target, ids, settings, generation, draft_options)
        answers.append(TracedAnswer("Without drafts", NONE, plain_steps))
    if options.trace is not None:
        facts = {"model": target.name, "prompt": prompt, "settings": shown_settings(options)}
        write_trace(options.trace, facts, answers, target.tokenizer, stores)
    _finish(options, report)


def _read_stdin() -> str:
    if sys.stdin is None:
        raise InvalidArgument("PROMPT is missing, and stdin is closed; give a PROMPT, or send it to stdin")
    if sys.stdin.isatty():
        print("suffolk: reading the prompt from stdin; Ctrl-D ends it", file=sys.stderr)
    try:
        prompt = sys.stdin.read()
    except UnicodeDecodeError as error:
        raise InvalidArgument(
            Field("the prompt"), f" cannot be read: {error}; convert it to {error.encoding}"
        ) from None
    if not prompt:
        raise InvalidArgument("PROMPT is missing, and stdin is empty; give a PROMPT, or send it to stdin")
    return prompt


def _read_prediction(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return read_bounded(path).decode("utf-8-sig")
    except OSError as error:
        raise NotFound(f"--prediction {path}: cannot be read ({error.strerror}); name a text file") from None
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"--prediction {path}: no UTF-8 at byte {error.start}; convert the file") from None


def _finish(options: Options, report: dict[str, Any]) -> None:
    report["verification"] = options.verification
    if options.explain:
        print_sources(report, Colours.choose(options.colour).report)
    print("\n".join(report_lines(report, options.explain)), file=sys.stderr)
    if options.stats_json is not None:
        write_json(options.stats_json, report)


def _engine(
    target: Target,
    drafters: Mapping[str, Drafter],
    prompt_tokens: int,
    settings: SamplingSettings,
    max_nodes: int,
    costs: CostModel | None = None,
) -> Engine:
    """An engine for one request at a time, with room for this prompt and answer."""
    from suffolk.serving.decoding.engine.loop.engine import Engine

    room = settings.max_new_tokens
    if target.context_length is not None:
        room = max(0, min(room, target.context_length - prompt_tokens))
    capacity = prompt_tokens + room + (rows_behind(max_nodes) if drafters else 1)
    return Engine(target, drafters, costs, slots=1, capacity=capacity, queue=0)


def _compare(
    target: Target, ids: list[int], settings: SamplingSettings, drafted: Generation, draft_options: DraftOptions
) -> tuple[dict[str, Any], list[Step]]:
    """Decode without drafts and compare the texts. Returns the comparison, ready for JSON, and the steps."""
    from suffolk.serving.decoding.engine.sampling.near_tie import first_difference

    with _engine(target, {}, len(ids), settings, 1) as engine:
        plain = engine.generate(ids, settings, options=DraftOptions(trace=draft_options.trace))
        steps = list(plain)
    difference = first_difference(target, ids, plain.tokens, drafted.tokens, settings)
    compared = {
        "tokens": plain.stats.tokens,
        "tokens_per_second": plain.stats.tokens_per_second,
        "identical": difference is None,
        "speed_up": drafted.stats.tokens_per_second / plain.stats.tokens_per_second if plain.stats.steps else 1.0,
    }
    if difference is not None:
        compared |= {"position": difference.position, "gap": difference.gap}
    return compared, steps


def _is_chat(target: Target, options: Options) -> bool:
    return bool(options.chat or (has_template(target) and not options.raw))


def _bad_words(target: Target, texts: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
    """The token ids of each text, at the start of a word and inside one (as transformers advises for ``bad_words_ids``)."""
    forms = [form for text in texts for form in (text.strip(), " " + text.strip())]
    encoded = [tuple(target.tokenizer(form, add_special_tokens=False)["input_ids"]) for form in forms]
    return tuple(dict.fromkeys(encoded))


def generate_remotely(
    options: Options, settings: SamplingSettings, prompt: str, draft_options: DraftOptions
) -> dict[str, Any]:
    """Generate in a worker and show the text as it comes. Returns the report.

    Raises:
        InvalidArgument: a setting of a local model is given, on the command line or in a file.
    """
    from suffolk.serving.worker.client import connect_worker

    defaults = {name: each.default for name, each in settings_of(Options).items()}
    for name in (*options.drafter_values, *LOCAL):
        given = options.given.get(name)
        if given is not None and given.value != defaults.get(name):  # 'config show' lists the defaults too
            raise InvalidArgument(
                f"{given.label} cannot be given with --worker, which has its own model and drafters; leave it out, or give --model"
            )
    with connect_worker(str(options.worker)) as worker:
        facts = worker.info()
        chat = options.chat or (facts["has_chat_template"] and not options.raw)
        drafter = options.drafter or facts["default_drafter"]
        generation = worker.generate(
            [("user", prompt)] if chat else prompt,
            settings,
            drafter,
            options.max_nodes if "max_nodes" in options.given else None,
            options=draft_options,
        )
        show(generation, Colours.choose(options.colour))
    found = {"worker": options.worker, "model": facts["model"], "drafter": drafter}
    return found | generation_facts(generation, settings)
