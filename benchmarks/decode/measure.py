"""Compares plain decoding to every drafter: the same prompts, in turn, in one process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from suffolk.benchmarks.decode.bandwidth import measure_bandwidth
from suffolk.benchmarks.decode.options import CONTROL, PLAIN, DecodingOptions
from suffolk.benchmarks.decode.setup import (
    Encoded,
    capacity_for,
    encode_prompts,
    load_target,
    make_drafters,
    opened_datastores,
    require_drafters,
    seconds_by_rows,
    target_facts,
)
from suffolk.benchmarks.decode.summary import summarize
from suffolk.benchmarks.decode.transformers_decoding import TransformersModel
from suffolk.benchmarks.progress import show_part
from suffolk.benchmarks.prompts import Prompt, load_prompts
from suffolk.benchmarks.stopping import keep
from suffolk.benchmarks.turns import rotated
from suffolk.datastore.retriever import Retriever
from suffolk.serving.engine.costs.cost_store import find_costs
from suffolk.serving.engine.loop.engine import Engine
from suffolk.serving.engine.model.target import Target
from suffolk.serving.engine.sampling.near_tie import first_difference
from suffolk.serving.engine.sampling.settings import SamplingSettings
from suffolk.serving.replay.recorder import Recorder, opened_recorder

WARM_UP_TOKENS = 4


def measure_decoding(options: DecodingOptions) -> dict[str, Any]:
    """Run the whole measurement, or up to Ctrl-C; return the results by name.

    Raises:
        NotFound, Unsupported: the model, datastore or prompts are missing or do not fit together.
    """
    prompts = load_prompts(options.prompts, options.style, options.limit, options.seed)
    with opened_datastores(options) as retrievers:
        require_drafters(options, retrievers)  # report missing parts before a model is loaded
        target = load_target(options)
        return measure_target(target, retrievers, prompts, options)


def measure_target(
    target: Target, retrievers: list[Retriever], prompts: list[Prompt], options: DecodingOptions
) -> dict[str, Any]:
    """Like ``measure_decoding``, with a loaded target and open retrievers."""
    encoded, skipped = encode_prompts(target, prompts, options)
    found = find_costs(target, 1, options.costs)
    measured = seconds_by_rows(found.costs)
    store = options.datastores[0] if options.datastores else None
    rival = TransformersModel(options.model, target, options.assistant, store) if options.transformers else None
    capacity = capacity_for(encoded, options)
    drafters = make_drafters(options, target, retrievers, 1, capacity)
    with (
        opened_recorder(options.record, target, options.model) as recorder,
        Engine(target, drafters, found.costs, slots=1, capacity=capacity, queue=0) as engine,
    ):
        ways = _Ways(engine, rival, recorder, options)
        turns, total = _run_rounds(ways, target, encoded), options.rounds * len(encoded)
        kept, stopped = keep(turns, total, options.in_all_rounds("prompts"))
    runs = [row for rows in kept for row in rows]
    return {
        "stopped": stopped,
        "target": target_facts(target),
        "costs": {"source": found.source, "seconds_by_rows": measured, "slowdown": engine.slowdown},
        "bandwidth": measure_bandwidth(target, measured[1]),
        "summary": summarize(runs, ways.names),
        "prompts_skipped": skipped,
        "runs": runs,
    }


def run_way(
    engine: Engine,
    way: str,
    ids: list[int],
    settings: SamplingSettings,
    max_nodes: int,
    recorder: Recorder | None = None,
    group: str = "",
) -> tuple[list[int], dict[str, Any]]:
    generation = engine.generate(ids, settings, "none" if way in (PLAIN, CONTROL) else way, max_nodes)
    for _ in generation:
        pass
    if recorder is not None:
        recorder.add(generation, group)
    return generation.tokens, generation.stats.to_dict()


def compare(
    target: Target,
    prompt: Prompt,
    ids: list[int],
    settings: SamplingSettings,
    outcomes: dict[str, tuple[list[int], dict[str, Any]]],
) -> list[dict[str, Any]]:
    """One row for each method, with its measurements and whether its output equals that of plain decoding."""
    plain_tokens, plain = outcomes[PLAIN]
    rows = []
    for name in sorted(outcomes, key=lambda each: each != PLAIN):
        tokens, stats = outcomes[name]
        row = {"prompt": prompt.name, "group": prompt.group, "drafter": name, **stats}
        difference = first_difference(target, ids, plain_tokens, tokens, settings)
        row["identical"] = difference is None
        row["tokens_compared"] = len(tokens) if difference is None else difference.position + 1
        if difference is not None:
            row |= {"differs_at": difference.position, "near_tie_gap": difference.gap}
        if plain["tokens_per_second"]:
            row["speed_up"] = stats["tokens_per_second"] / plain["tokens_per_second"]
        rows.append(row)
    return rows


@dataclass(frozen=True, slots=True)
class _Ways:
    """The decoding methods by name: those of the engine, and those of ``rival`` if given."""

    engine: Engine
    rival: TransformersModel | None
    recorder: Recorder | None
    options: DecodingOptions

    @property
    def names(self) -> list[str]:
        return [*self.options.ways, *(() if self.rival is None else self.rival.ways)]

    def warm_up(self, ids: list[int]) -> None:
        settings = SamplingSettings(max_new_tokens=WARM_UP_TOKENS)
        run_way(self.engine, PLAIN, ids, settings, 1)
        if self.rival is not None:
            for way in self.rival.ways:  # one of these methods compiles
                self.rival.run(way, ids, settings)

    def run(self, name: str, prompt: Prompt, ids: list[int], record: bool) -> tuple[list[int], dict[str, Any]]:
        if self.rival is not None and name in self.rival.ways:
            return self.rival.run(name, ids, self.options.settings)
        recorder = self.recorder if record and name != CONTROL else None
        options = self.options
        return run_way(self.engine, name, ids, options.settings, options.max_nodes, recorder, prompt.group)


def _run_rounds(ways: _Ways, target: Target, encoded: Encoded) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of all methods for each round and prompt. The order of methods rotates."""
    ways.warm_up(encoded[0][1])
    turns = [(number, *each) for number in range(1, ways.options.rounds + 1) for each in encoded]
    for place, (number, prompt, ids) in enumerate(turns):
        record = number == 1  # a replay needs each output once
        outcomes = {name: ways.run(name, prompt, ids, record) for name in rotated(ways.names, place)}
        done = compare(target, prompt, ids, ways.options.settings, outcomes)
        yield [{"round": number, **row} for row in done]
        rates = ", ".join(f"{row['drafter']} {row['tokens_per_second']:.1f}" for row in done)
        show_part(f"{place + 1} of {len(turns)} {prompt.group} {prompt.name}: tokens/s {rates}")
