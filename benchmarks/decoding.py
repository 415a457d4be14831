"""Plain decoding against every drafter, on the same prompts, in turn, in one process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import transformers

from benchmarks.decoding_options import CONTROL, PLAIN, DecodingOptions
from benchmarks.decoding_summary import summarize
from benchmarks.prompts import Prompt, encode_prompt, load_prompts
from datastore.datastore import open_datastore
from datastore.errors import InvalidArgument
from datastore.retriever import Retriever
from datastore.tokenizer import fingerprint, load_tokenizer
from serving.decoding import cost_curve
from serving.decoding.engine import Engine
from serving.decoding.near_tie import first_difference
from serving.decoding.settings import SamplingSettings
from serving.decoding.target import Target
from serving.draft_service.client import connect
from serving.drafters.choose import make_drafter, require_match
from serving.drafters.limits import Limits
from serving.transport.url import is_url

WARM_UP_TOKENS = 4
LIMITS = Limits()


def measure_decoding(options: DecodingOptions, report: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """Run the whole measurement; the results by name. ``report`` is told a line after every prompt.

    Raises:
        NotFound, Unsupported: the model, datastore or prompts are missing or do not fit together.
    """
    prompts = load_prompts(options.prompts, options.style, options.limit, options.seed)
    with _opened(options) as retriever:
        for name in options.drafters:
            make_drafter(name, 1, _all(retriever), LIMITS)  # refuse what is missing before a model is loaded
        target = _load(options)
        return measure_target(target, retriever, prompts, options, report)


def measure_target(
    target: Target,
    retriever: Retriever | None,
    prompts: list[Prompt],
    options: DecodingOptions,
    report: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """As ``measure_decoding``, with a target and a retriever at hand."""
    encoded, skipped = _encode(target, prompts, options)
    settings = SamplingSettings(
        max_new_tokens=options.max_new_tokens,
        temperature=options.temperature,
        top_p=options.top_p,
        seed=options.seed,
        ignore_eos=options.ignore_eos,
    )
    curve = cost_curve.measure(target)
    measured = dict(zip([int(size) for size in curve.sizes], curve.seconds.tolist(), strict=True))
    longest = max(len(ids) for _, ids in encoded)
    drafters = {
        name: drafter
        for name in options.drafters
        if (drafter := make_drafter(name, target.vocab_size, _all(retriever), LIMITS)) is not None
    }
    capacity = longest + options.max_new_tokens + options.max_nodes
    with Engine(target, drafters, curve, slots=1, capacity=capacity, queue=0) as engine:
        _run(engine, PLAIN, encoded[0][1], SamplingSettings(max_new_tokens=WARM_UP_TOKENS), 1)
        runs: list[dict[str, Any]] = []
        turns = [(turn, prompt, ids) for turn in range(options.rounds) for prompt, ids in encoded]
        for number, (turn, prompt, ids) in enumerate(turns):
            names = list(options.ways)[number % len(options.ways) :] + list(options.ways)[: number % len(options.ways)]
            outcomes = {name: _run(engine, name, ids, settings, options.max_nodes) for name in names}
            done = _compare(target, prompt, ids, settings, outcomes)
            runs += [{"round": turn + 1, **run} for run in done]
            rates = ", ".join(f"{run['drafter']} {run['tokens_per_second']:.1f}" for run in done)
            report(f"{number + 1} of {len(turns)} {prompt.group} {prompt.name}: tokens/s {rates}")
    return {
        "target": {"dtype": str(target.dtype), "device": str(target.device), "cpu_threads": torch.get_num_threads()},
        "cost_curve_seconds": measured,
        "summary": summarize(runs, options.ways),
        "prompts_skipped": skipped,
        "runs": runs,
    }


def _run(
    engine: Engine, way: str, ids: list[int], settings: SamplingSettings, max_nodes: int
) -> tuple[list[int], dict[str, Any]]:
    generation = engine.generate(ids, settings, "none" if way in (PLAIN, CONTROL) else way, max_nodes)
    for _ in generation:
        pass
    return generation.tokens, generation.stats.to_dict()


def _compare(
    target: Target,
    prompt: Prompt,
    ids: list[int],
    settings: SamplingSettings,
    outcomes: dict[str, tuple[list[int], dict[str, Any]]],
) -> list[dict[str, Any]]:
    """One row per way: its numbers, and whether its output is plain decoding's."""
    plain_tokens, plain = outcomes[PLAIN]
    rows = []
    for name in sorted(outcomes, key=lambda each: each != PLAIN):
        tokens, stats = outcomes[name]
        row = {"prompt": prompt.name, "group": prompt.group, "drafter": name, **stats}
        difference = first_difference(target, ids, plain_tokens, tokens, settings)
        row["identical"] = difference is None
        if difference is not None:
            row |= {"differs_at": difference.position, "near_tie_gap": difference.gap}
        if plain["tokens_per_second"]:
            row["speed_up"] = stats["tokens_per_second"] / plain["tokens_per_second"]
        rows.append(row)
    return rows


def _encode(
    target: Target, prompts: list[Prompt], options: DecodingOptions
) -> tuple[list[tuple[Prompt, list[int]]], list[dict[str, Any]]]:
    """The prompts that leave the model room for the whole answer, and those that do not."""
    encoded: list[tuple[Prompt, list[int]]] = []
    skipped: list[dict[str, Any]] = []
    for prompt in prompts:
        ids = encode_prompt(prompt, target.tokenizer, options.model)
        if target.context_length is not None and len(ids) + options.max_new_tokens > target.context_length:
            skipped.append({"prompt": prompt.name, "group": prompt.group, "tokens": len(ids)})
        else:
            encoded.append((prompt, ids))
    if not encoded:
        raise InvalidArgument(f"no prompt leaves room for {options.max_new_tokens} tokens; lower --max-new-tokens")
    return encoded, skipped


def _all(retriever: Retriever | None) -> list[Retriever]:
    return [] if retriever is None else [retriever]


@contextlib.contextmanager
def _opened(options: DecodingOptions) -> Iterator[Retriever | None]:
    """The datastore, found to fit the model; None if none was given."""
    if options.datastore is None:
        yield None
        return
    name = options.datastore
    retriever: Retriever = connect(name) if is_url(name) else open_datastore(name)
    try:
        require_match(retriever, name, LIMITS, options.model, fingerprint(load_tokenizer(options.model)))
        yield retriever
    finally:
        retriever.close()


def _load(options: DecodingOptions) -> Target:
    messages: Any = transformers.utils.logging  # its functions have no types
    messages.disable_progress_bar()
    messages.set_verbosity_error()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    return Target.load(options.model, options.dtype, options.device)
