"""Compares one tree with single sources and switching rules, and continues interrupted runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from research.command import alternating
from research.exclusions import require_named
from research.one_tree.along_recordings import AlongRecordings, recorded_answers
from research.one_tree.compared_drafters import Sources, make_compared
from research.one_tree.counted_time import CountedTime
from research.one_tree.options import HybridOptions
from research.one_tree.run_log import RunLog
from suffolk.benchmarks.decode.measure import WARM_UP_TOKENS, compare
from suffolk.benchmarks.decode.options import LIMITS, PLAIN
from suffolk.benchmarks.decode.setup import Encoded, encode_prompts, load_target, opened_datastores, target_facts
from suffolk.benchmarks.parts import rotated
from suffolk.benchmarks.prompts import Prompt, load_prompts
from suffolk.build_index.progress import part_progress, show_part
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.retriever import Retriever
from suffolk.serving.decoding.drafters.load import load_drafters
from suffolk.serving.decoding.engine.costs.cost_store import find_costs
from suffolk.serving.decoding.engine.loop.drafter import CacheDrafter, Drafter
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.decoding.replay.replayer import SPARE


@dataclass(frozen=True, slots=True)
class _Bench:
    options: HybridOptions
    target: Target
    store: Retriever | None
    unrelated: Retriever | None
    prompts: Encoded
    log: RunLog

    @property
    def longest(self) -> int:
        """The number of tokens of the longest prompt with its answer."""
        return max(len(ids) for _, ids in self.prompts) + self.options.decoding.max_new_tokens

    def settings(self, temperature: float) -> SamplingSettings:
        return replace(self.options.decoding.settings, temperature=temperature)

    def drafters(self, nodes: int, counted: bool = False) -> _Drafters:
        """Create untrained drafters for trees of up to ``nodes`` nodes. ``counted``: time them by stored pass costs."""
        capacity, stores = self.longest + nodes + SPARE, [] if self.store is None else [self.store]
        networks = load_drafters(self.target, self.options.decoding.models, 1, capacity, stores, LIMITS)
        sources = Sources(self.target.vocab_size, self.store, self.unrelated, networks)
        reads_cache = any(isinstance(network, CacheDrafter) for network in networks)
        clock = CountedTime(networks) if counted else None
        return _Drafters(make_compared(self.options.names, sources), reads_cache, clock)


@dataclass(frozen=True, slots=True)
class _Drafters:
    by_name: dict[str, Drafter]
    reads_cache: bool
    counted: CountedTime | None = None

    def clock(self) -> contextlib.AbstractContextManager[None]:
        """The clock that times drafters inside the block."""
        return contextlib.nullcontext() if self.counted is None else self.counted.running()

    def close(self) -> None:
        for drafter in self.by_name.values():
            drafter.close()


def run_hybrid(options: HybridOptions) -> tuple[RunLog, dict[str, Any]]:
    """Run the measurements whose results the file lacks; return the file, and facts of the run.

    Raises:
        NotFound, Unsupported, InvalidArgument: model, datastores, heads or prompts are missing or do not fit together.
    """
    decoding = options.decoding
    decoding.models.parts()
    require_named(options.excluded, decoding.prompts)
    log = RunLog(options.output / "rows.jsonl", options.settings())
    with opened_datastores(decoding) as stores, _unrelated(options) as unrelated:
        target = load_target(decoding)
        found = load_prompts(decoding.prompts, decoding.style, decoding.limit, decoding.seed)
        kept = [prompt for prompt in found if prompt.name not in options.excluded]
        if not kept:
            raise InvalidArgument("--exclude removes every prompt; exclude fewer, or give more prompts")
        prompts, skipped = encode_prompts(target, kept, decoding)
        # interrupted runs then cover all groups, and drafters see a mix of them
        ordered = alternating(prompts, lambda each: each[0].group)
        bench = _Bench(options, target, stores[0] if stores else None, unrelated, ordered, log)
        for temperature in options.temperatures:
            for part, nodes in _replayed(options):
                _run_replay(bench, temperature, part, nodes)
            if "service" in options.parts:
                _run_service(bench, temperature)
    excluded = sorted({prompt.name for prompt in found} & options.excluded)
    return log, {
        "target": target_facts(target),
        "prompts": len(prompts),
        "prompts_skipped": skipped,
        "prompts_excluded": excluded,
    }


def _replayed(options: HybridOptions) -> list[tuple[str, int]]:
    """The parts that run along recorded answers, and their tree sizes."""
    nodes = [("nodes", nodes) for nodes in options.nodes if "nodes" in options.parts]
    return nodes + [("planned", options.decoding.max_nodes)] * ("planned" in options.parts)


def _run_replay(bench: _Bench, temperature: float, part: str, nodes: int) -> None:
    options, log = bench.options, bench.log
    keys = [_key(part, temperature, prompt) | {"nodes": nodes} for prompt, _ in bench.prompts]
    missing = [place for place, key in enumerate(keys) if not log.has(**key)]
    if not missing:
        return
    path = options.output / f"answers-{temperature:g}.jsonl"
    settings = bench.settings(temperature)
    recordings = recorded_answers(path, bench.target, options.decoding.model, bench.prompts, settings)
    costs = find_costs(bench.target, 1, options.decoding.costs).costs if part == "planned" else None
    counted = options.counted and part == "planned"
    unit = f"prompts, {part}, temperature {temperature:g}, {nodes} nodes"
    with contextlib.closing(bench.drafters(nodes, counted)) as drafters, part_progress(len(missing), unit) as done:
        along = AlongRecordings(bench.target, drafters.by_name, nodes, bench.longest, costs, drafters.reads_cache)
        for number, place in enumerate(missing, 1):
            with drafters.clock():
                found = along.replay(recordings[place])
            log.add(keys[place] | {"drafters": found})
            lengths = ", ".join(f"{name} {each['tokens'] / each['passes']:.2f}" for name, each in found.items())
            show_part(f"{keys[place]['group']} {keys[place]['prompt']}: M {lengths or 'of one token'}")
            done(number)


def _run_service(bench: _Bench, temperature: float) -> None:
    options, log, settings = bench.options, bench.log, bench.settings(temperature)
    max_nodes = options.decoding.max_nodes
    missing = [each for each in bench.prompts if not log.has(**_key("service", temperature, each[0]))]
    if not missing:
        return
    capacity = bench.longest + max_nodes + SPARE
    costs = find_costs(bench.target, 1, options.decoding.costs).costs
    by_name = bench.drafters(max_nodes).by_name
    ways = [PLAIN, *by_name]
    with (
        Engine(
            bench.target, by_name, costs, slots=1, capacity=capacity, queue=0, prefix_reuse=False
        ) as engine,  # closes the drafters
        part_progress(len(missing), f"prompts in service, temperature {temperature:g}") as done,
    ):
        _run_way(engine, PLAIN, missing[0][1], replace(settings, max_new_tokens=WARM_UP_TOKENS), 1)
        for number, (prompt, ids) in enumerate(missing):
            outcomes = {name: _run_way(engine, name, ids, settings, max_nodes) for name in rotated(ways, number)}
            runs = compare(bench.target, prompt, ids, settings, outcomes)
            log.add(_key("service", temperature, prompt) | {"runs": runs})
            rates = ", ".join(f"{run['drafter']} {run['tokens_per_second']:.1f}" for run in runs)
            show_part(f"{prompt.group} {prompt.name}: tokens/s {rates}")
            done(number + 1)


def _run_way(
    engine: Engine, way: str, ids: list[int], settings: SamplingSettings, max_nodes: int
) -> tuple[list[int], dict[str, Any]]:
    generation = engine.generate(ids, settings, way, max_nodes)
    for _ in generation:
        pass
    return generation.tokens, generation.stats.to_dict()


def _key(part: str, temperature: float, prompt: Prompt) -> dict[str, Any]:
    return {"part": part, "temperature": temperature, "group": prompt.group, "prompt": prompt.name}


@contextlib.contextmanager
def _unrelated(options: HybridOptions) -> Iterator[Retriever | None]:
    if options.unrelated is None:
        yield None
        return
    with open_datastore(options.unrelated) as store:
        yield store
