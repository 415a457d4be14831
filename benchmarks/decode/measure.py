"""Compares plain decoding to every drafter on the same prompts. The methods take turns, piece by piece, in one process."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch

from suffolk.benchmarks.decode.bounding_drafters import RECORDED, USELESS, RecordedDrafter
from suffolk.benchmarks.decode.options import CONTROL, PLAIN, DecodingOptions
from suffolk.benchmarks.decode.setup import (
    Encoded,
    capacity_for,
    encode_prompts,
    load_target,
    make_lone_drafter,
    opened_datastores,
    require_drafters,
    seconds_by_rows,
    target_facts,
)
from suffolk.benchmarks.decode.summary import summarize
from suffolk.benchmarks.decode.transformers_decoding import TransformersModel
from suffolk.benchmarks.decode.way import Way, decode_in_turns, piece_tokens
from suffolk.benchmarks.parts import keep
from suffolk.benchmarks.prompts import Prompt, load_prompts
from suffolk.build_index.progress import show_part
from suffolk.datastore.retriever import Retriever
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.cost_store import find_costs
from suffolk.serving.decoding.engine.loop.generation import Generation
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.near_tie import first_difference
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.decoding.replay.recorder import Recorder, opened_recorder

WARM_UP_TOKENS = 4
_ITEMS = 1 << 26
_ROUNDS = 5


def measure_decoding(options: DecodingOptions) -> dict[str, Any]:
    """Run the measurement to its end or to Ctrl-C; return the results by name.

    Raises:
        NotFound, Unsupported: the model, datastore or prompts are missing or do not fit together.
    """
    prompts = load_prompts(options.prompts, options.style, options.limit, options.seed)
    with opened_datastores(options) as retrievers:
        require_drafters(options, retrievers, (USELESS, RECORDED))  # report missing parts before a model is loaded
        target = load_target(options)
        encoded, skipped = encode_prompts(target, prompts, options)
        found = find_costs(target, 1, options.costs)
        measured = seconds_by_rows(found.costs)
        store = options.datastores[0] if options.datastores else None
        rival = TransformersModel(options.model, target, options.assistant, store) if options.transformers else None
        with (
            opened_recorder(options.record, target, options.model) as recorder,
            _opened_ways(target, retrievers, found.costs, capacity_for(encoded, options), options) as own,
        ):
            ways = _Ways(own, rival, recorder, piece_tokens(measured[1]), options)
            turns, total = _run_rounds(ways, target, encoded), options.rounds * len(encoded)
            kept, stopped = keep(turns, total, options.in_all_rounds("prompts"))
    runs = [row for rows in kept for row in rows]
    slowdowns = {way.name: way.loop.slowdown for way in own}
    return {
        "stopped": stopped,
        "target": target_facts(target),
        "costs": {"source": found.source, "seconds_by_rows": measured, "slowdown": slowdowns},
        "bandwidth": measure_bandwidth(target, measured[1]),
        "piece_tokens": ways.tokens,
        "summary": summarize(runs, ways.names, options.seed),
        "prompts_skipped": skipped,
        "runs": runs,
    }


def compare(
    target: Target,
    prompt: Prompt,
    ids: list[int],
    settings: SamplingSettings,
    outcomes: dict[str, tuple[list[int], dict[str, Any]]],
) -> list[dict[str, Any]]:
    """One row for each method, with its measurements and whether its output equals plain decoding's."""
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
    """The decoding methods. Suffolk's methods take turns piece by piece. The methods of transformers run whole texts.

    Attributes:
        own: Suffolk's methods.
        rival: transformers' methods; None to leave them out.
        tokens: tokens of a piece.
    """

    own: list[Way]
    rival: TransformersModel | None
    recorder: Recorder | None
    tokens: int
    options: DecodingOptions

    @property
    def names(self) -> list[str]:
        return [*self.options.ways, *self.rivals]

    @property
    def rivals(self) -> tuple[str, ...]:
        return () if self.rival is None else self.rival.ways

    def warm_up(self, ids: list[int]) -> None:
        settings = SamplingSettings(max_new_tokens=WARM_UP_TOKENS)
        decode_in_turns(self.own, ids, settings, WARM_UP_TOKENS, random.Random(0))
        if self.rival is not None:
            for way in self.rivals:  # one of these methods compiles
                self.rival.run(way, ids, settings)

    def run(
        self, prompt: Prompt, ids: list[int], place: int, record: bool
    ) -> dict[str, tuple[list[int], dict[str, Any]]]:
        """Return tokens and statistics of each method. ``place`` seeds the order of the methods."""
        settings = self.options.settings
        order = random.Random(f"{self.options.seed} {place}")
        outcomes = {}
        for replayed in (way.drafter for way in self.own if isinstance(way.drafter, RecordedDrafter)):
            plain = decode_in_turns(self.own[:1], ids, settings, settings.max_new_tokens, order)[PLAIN]
            replayed.replay(ids, plain.request.generated)
        for name, text in decode_in_turns(self.own, ids, settings, self.tokens, order).items():
            request, pieces = text.request, [asdict(each) for each in text.pieces]
            outcomes[name] = request.generated, request.stats.to_dict() | {"pieces": pieces}
            if self.recorder is not None and record and name != CONTROL:
                self.recorder.add(Generation(request, lambda generation: None), prompt.group)
        if self.rival is not None:
            outcomes |= {
                name: self.rival.run(name, ids, settings) for name in order.sample(self.rivals, len(self.rivals))
            }
        return outcomes


@contextmanager
def _opened_ways(
    target: Target, retrievers: list[Retriever], costs: CostModel, capacity: int, options: DecodingOptions
) -> Iterator[list[Way]]:
    """Yield the engine's methods. Their drafters are closed at the end of the block."""
    with ExitStack() as stack:
        ways = []
        for name in options.ways:
            drafter = None if name == CONTROL else make_lone_drafter(name, options, target, retrievers, capacity)
            if drafter is not None:
                stack.callback(drafter.close)
            ways.append(Way(name, target, drafter, costs, capacity, options.max_nodes))
        yield ways


def _run_rounds(ways: _Ways, target: Target, encoded: Encoded) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of all methods for each round and prompt."""
    ways.warm_up(encoded[0][1])
    turns = [(number, *each) for number in range(1, ways.options.rounds + 1) for each in encoded]
    for place, (number, prompt, ids) in enumerate(turns):
        outcomes = ways.run(prompt, ids, place, record=number == 1)  # a replay needs each output once
        done = compare(target, prompt, ids, ways.options.settings, outcomes)
        yield [{"round": number, **row} for row in done]
        rates = ", ".join(f"{row['drafter']} {row['tokens_per_second']:.1f}" for row in done)
        show_part(f"{place + 1} of {len(turns)} {prompt.group} {prompt.name}: tokens/s {rates}")


def measure_bandwidth(target: Target, pass_seconds: float) -> dict[str, Any]:
    """Return the bytes that a pass reads, the device's bytes per second, and the share of this rate that the pass reaches.

    ``pass_seconds``: the measured time of a pass. A pass reads few rows of the embedding
    table, so the table counts only if the output layer shares it.
    """
    needed = _weight_bytes(target)
    rate = _read_rate(target.device)
    return {
        "weight_bytes_a_pass": needed,
        "device_bytes_a_second": rate,
        "plain_pass_seconds": pass_seconds,
        "share_of_limit": needed / pass_seconds / rate,
    }


def _weight_bytes(target: Target) -> int:
    embeddings = target.model.get_input_embeddings().weight
    head = target.model.get_output_embeddings()
    tied = head is not None and head.weight.data_ptr() == embeddings.data_ptr()
    everything = sum(parameter.nbytes for parameter in target.model.parameters())
    return int(everything if tied else everything - embeddings.nbytes)


def _read_rate(device: torch.device) -> float:
    """Measure bytes per second of summing an array far larger than any cache; the best of a few rounds."""
    numbers = torch.ones(_ITEMS, dtype=torch.float32, device=device)
    best = float("inf")
    for _ in range(_ROUNDS):
        begin = time.perf_counter()
        numbers.sum().item()
        best = min(best, time.perf_counter() - begin)
    return numbers.nbytes / best
