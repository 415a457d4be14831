"""Samples answers to the same prompts in several epochs, with each method in turn, in one process."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from suffolk.benchmarks.decode.options import PLAIN
from suffolk.benchmarks.decode.setup import encode_prompts, load_target
from suffolk.benchmarks.prompts import Prompt, load_prompts
from suffolk.benchmarks.rollouts.memory import Memory, make_memory
from suffolk.benchmarks.rollouts.options import RolloutOptions
from suffolk.benchmarks.rollouts.summary import summarize
from suffolk.benchmarks.stopping import keep
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.drafters.neural.tree_bounds import rows_behind
from suffolk.serving.engine.costs.cost_store import find_costs
from suffolk.serving.engine.loop.draft_options import DraftOptions
from suffolk.serving.engine.loop.engine import Engine
from suffolk.serving.engine.sampling.settings import SamplingSettings


def measure_rollouts(options: RolloutOptions, report: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """Run the whole measurement, or up to Ctrl-C; return the results by name.

    The answers to a prompt are one batch. All methods generate the same answers, because a seed belongs to an answer and drafts do
    not change the text. Each method has its own drafter, budget and memory, which begins empty.

    ``report`` gets a line after every prompt.

    Raises as ``load_prompts``, ``Target.load`` and ``make_memory``.
    """
    decoding = options.decoding
    prompts = load_prompts(decoding.prompts, decoding.style, decoding.limit, decoding.seed)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="suffolk-rollouts-")))
        target = load_target(decoding)
        memories = {way: make_memory(way, folder, target.vocab_size) for way in (PLAIN, *options.methods)}
        for memory in memories.values():
            stack.callback(memory.close)
        encoded, skipped = encode_prompts(target, prompts, decoding)
        found = find_costs(target, options.samples, decoding.costs)
        capacity = max(len(ids) for _, ids in encoded) + decoding.max_new_tokens + rows_behind(decoding.max_nodes)
        drafters = {way: memory.drafter for way, memory in memories.items()}
        earlier = _earlier_answers(options, encoded, target.vocab_size) if options.earlier_model else None
        engine = stack.enter_context(
            Engine(target, drafters, found.costs, slots=options.samples, capacity=capacity, queue=0)
        )
        epochs = _Epochs(engine, memories, options, earlier)
        kept, stopped = keep(epochs.run(encoded, report), epochs.turns(encoded), "prompts in all epochs")
    runs = [row for rows in kept for row in rows]
    return {
        "stopped": stopped,
        "target": {"dtype": str(target.dtype), "device": str(target.device)},
        "costs": {"source": found.source},
        "summary": summarize(runs, (PLAIN, *options.methods)),
        "prompts_skipped": skipped,
        "runs": runs,
    }


Encoded = Sequence[tuple[Prompt, list[int]]]
Answers = list[list[int]]


@dataclass(frozen=True, slots=True)
class _Epochs:
    """The epochs of all methods. ``earlier``: the answers to each prompt in the first epoch, if another model wrote them."""

    engine: Engine
    memories: dict[str, Memory]
    options: RolloutOptions
    earlier: list[Answers] | None

    def turns(self, encoded: Encoded) -> int:
        """The number of prompts that ``run`` measures."""
        return len(encoded) * (len(self.options.temperatures) - (self.earlier is not None))

    def run(self, encoded: Encoded, report: Callable[[str], None]) -> Iterator[list[dict[str, Any]]]:
        """The rows of each prompt in each epoch, with the ways in rotating order."""
        list(self.engine.generate(encoded[0][1], SamplingSettings(8)))  # warms up
        ways = list(self.memories)
        for epoch, temperature in enumerate(self.options.temperatures):
            for place, (prompt, ids) in enumerate(encoded):
                if self.earlier is not None and epoch == 0:
                    for memory in self.memories.values():
                        memory.learn(prompt.name, self.earlier[place])
                    continue
                first = (epoch + place) % len(ways)
                settings = _settings(self.options, epoch, place, temperature)
                rows, plain = [], None
                for way in (*ways[first:], *ways[:first]):
                    row, answers = self._batch(way, prompt, ids, settings)
                    plain = answers if plain is None else plain
                    rows.append(row | {"epoch": epoch + 1, "identical": sum(map(list.__eq__, answers, plain))})
                yield rows
                rates = ", ".join(f"{row['way']} {row['tokens'] / row['seconds']:.0f}" for row in rows)
                report(f"epoch {epoch + 1}, prompt {place + 1} of {len(encoded)}: tokens/s {rates}")
            for memory in self.memories.values():
                memory.end_epoch()

    def _batch(
        self, way: str, prompt: Prompt, ids: list[int], settings: Sequence[SamplingSettings]
    ) -> tuple[dict[str, Any], Answers]:
        """Generate all answers to a prompt at once, and let the memory keep them. The time includes the keeping."""
        memory, options = self.memories[way], DraftOptions(group=prompt.name)
        kept, begin = memory.seconds, time.perf_counter()
        running = [self.engine.generate(ids, each, way, self.options.decoding.max_nodes, options) for each in settings]
        for generation in running:
            for _ in generation:
                pass
        answers = [generation.tokens for generation in running]
        memory.learn(prompt.name, answers)
        row = {
            "way": way,
            "prompt": prompt.name,
            "answers": len(answers),
            "tokens": sum(map(len, answers)),
            "passes": sum(generation.stats.steps for generation in running),
            "seconds": time.perf_counter() - begin,
            "keeping_seconds": memory.seconds - kept,
        }
        return row, answers


def _settings(options: RolloutOptions, epoch: int, place: int, temperature: float) -> list[SamplingSettings]:
    """The settings of each answer to a prompt, each with a seed of its own."""
    decoding, samples = options.decoding, options.samples
    first = ((decoding.seed * 1000 + epoch) * 100_000 + place) * samples
    return [
        SamplingSettings(
            decoding.max_new_tokens,
            temperature,
            top_p=decoding.top_p,
            seed=first + sample,
            ignore_eos=decoding.ignore_eos,
        )
        for sample in range(samples)
    ]


def _earlier_answers(options: RolloutOptions, encoded: Encoded, vocab_size: int) -> list[Answers]:
    """The answers of the earlier model, by prompt. Raises InvalidArgument if it has another vocabulary."""
    decoding = replace(options.decoding, model=str(options.earlier_model))
    target = load_target(decoding)
    if target.vocab_size != vocab_size:
        raise InvalidArgument(
            f"earlier model {options.earlier_model} has {target.vocab_size} token ids, the model {vocab_size}; "
            "choose one with the same tokenizer"
        )
    capacity = max(len(ids) for _, ids in encoded) + decoding.max_new_tokens + rows_behind(1)
    answers = []
    with Engine(target, slots=options.samples, capacity=capacity, queue=0) as engine:
        for place, (_, ids) in enumerate(encoded):
            running = [engine.generate(ids, each) for each in _settings(options, 0, place, options.temperatures[0])]
            for generation in running:
                for _ in generation:
                    pass
            answers.append([generation.tokens for generation in running])
    return answers
