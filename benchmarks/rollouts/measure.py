"""Samples answers to the same prompts in several epochs, with each method in turn, in one process."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from suffolk.benchmarks.decode.options import PLAIN
from suffolk.benchmarks.decode.report import PACKAGES as PACKAGES
from suffolk.benchmarks.decode.report import skipped_lines
from suffolk.benchmarks.decode.setup import Encoded, capacity_for, encode_prompts, load_target, target_facts
from suffolk.benchmarks.parts import keep, rotated
from suffolk.benchmarks.plot import Panel
from suffolk.benchmarks.prompts import load_prompts
from suffolk.benchmarks.rollouts.answers import AnswerFile, Answers, RolloutOptions, plain_answers, settings_of
from suffolk.benchmarks.rollouts.decoder import CountedDecoder, Decoder, EngineDecoder, Job
from suffolk.benchmarks.rollouts.memory import Memory, opened_memories
from suffolk.build_index.progress import show_part
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.text_table import Table
from suffolk.serving.decoding.engine.costs.cost_store import find_costs
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings

COLUMNS = {
    "epoch": "{epoch}",
    "method": "{way}",
    "tokens/s": "{tokens_per_second:.1f}",
    "speed-up": "{speed_up:.3f}",
    "M": "{mean_generated_length:.2f}",
    "drafted": "{drafted_tokens:,}",
    "accepted": "{accepted_tokens:,}",
    "keeping us/token": "{keeping_microseconds_a_token:.1f}",
    "identical": "{identical} of {answers}",
}
NOTES = (
    "speed-up: ratio of all tokens per second to plain decoding, prompts and the keeping of answers included",
    "with --answers: passes and sampling count as their measured cost, all else as its processor time",
    "M: tokens generated per target pass and request; drafted: drafted tokens that were verified; accepted: those accepted",
    "keeping: time to insert finished answers; arctic inserts within its drafts",
    "identical: answers equal to the first method's token for token; the methods run in turn, in rotating order",
    "prompt trees: an index for each prompt, replaced after each epoch (HistoSpec's way); arctic: the suffix tree of Arctic "
    "Inference with this engine's planner; live store: one store of all answers, the prompt's own group first; hybrid: the live "
    "store and prompt lookup",
)


def measure_rollouts(options: RolloutOptions) -> dict[str, Any]:
    """Run the measurement to its end or to Ctrl-C; return the results by name.

    All answers of an epoch are queued, prompt by prompt; ``options.samples`` of them run at once. All methods generate the same
    answers, because each answer has its own seed and drafts do not change the text. Each method has its own drafter, its own
    budget, and its own memory, which begins empty.

    With ``options.answers``, the answers are sampled once by plain decoding. The methods then draft along them, and a pass takes
    its stored cost instead of its real time.

    Raises the errors of ``load_prompts``, ``Target.load``, ``AnswerFile`` and ``make_memory``.
    """
    decoding = options.decoding
    prompts = load_prompts(decoding.prompts, decoding.style, decoding.limit, decoding.seed)
    with contextlib.ExitStack() as stack:
        target = load_target(decoding)
        memories = stack.enter_context(opened_memories(options.methods, target.vocab_size))
        encoded, skipped = encode_prompts(target, prompts, decoding)
        found = find_costs(target, options.samples, decoding.costs)
        capacity = capacity_for(encoded, decoding)
        drafters = {way: memory.drafter for way, memory in memories.items()}
        known = _known_answers(options, target, encoded)
        decoder: Decoder
        if options.answers is not None:
            decoder = CountedDecoder(target, drafters, found.costs, options.samples, capacity, decoding.max_nodes)
        else:
            queue = len(encoded) * options.samples
            engine = Engine(target, drafters, found.costs, slots=options.samples, capacity=capacity, queue=queue)
            list(stack.enter_context(engine).generate(encoded[0][1], SamplingSettings(8)))  # warms up
            decoder = EngineDecoder(engine, decoding.max_nodes)
        epochs = _Epochs(decoder, memories, options, encoded, known)
        kept, stopped = keep(epochs.run(), len(epochs.measured), "epochs")
    return {
        "stopped": stopped,
        "target": target_facts(target),
        "costs": {"source": found.source},
        "summary": summarize([row for rows in kept for row in rows]),
        "prompts_skipped": skipped,
    }


@dataclass(frozen=True, slots=True)
class _Epochs:
    """The epochs of all methods. ``known``: for each epoch, the answers that are known beforehand, in the order of ``_jobs``."""

    decoder: Decoder
    memories: dict[str, Memory]
    options: RolloutOptions
    encoded: Encoded
    known: dict[int, Answers]

    @property
    def measured(self) -> range:
        """Return the measured epochs: all, or all but the first if another model wrote the first."""
        return range(int(self.options.earlier_model is not None), len(self.options.temperatures))

    def run(self) -> Iterator[list[dict[str, Any]]]:
        """Yield the rows of each epoch, one row for each method. The methods run in rotating order."""
        for epoch in range(len(self.options.temperatures)):
            if epoch in self.measured:
                rows: list[dict[str, Any]] = []
                plain = self.known.get(epoch, [])
                for way in rotated(list(self.memories), epoch):
                    row, answers = self._decode(way, epoch)
                    plain = plain or answers
                    rows.append(row | {"identical": sum(map(list.__eq__, answers, plain))})
                    show_part(f"epoch {epoch + 1}, {way}: {row['tokens'] / row['seconds']:.1f} tokens/s")
                yield rows
            else:
                for memory in self.memories.values():
                    for job, answer in zip(self._jobs(epoch), self.known[epoch], strict=True):
                        memory.learn(job.prompt, answer)
            for memory in self.memories.values():
                memory.end_epoch()

    def _jobs(self, epoch: int) -> list[Job]:
        """Return a job for each answer of an epoch. All samples of a prompt come before the next prompt."""
        return [
            Job(ids, prompt.name, settings)
            for place, (prompt, ids) in enumerate(self.encoded)
            for settings in settings_of(self.options, epoch, place)
        ]

    def _decode(self, way: str, epoch: int) -> tuple[dict[str, Any], Answers]:
        """Generate an epoch's answers with one method, whose memory keeps each ended answer. The time includes the keeping."""
        memory = self.memories[way]
        with self.decoder.clock():
            kept, begin = memory.seconds, time.perf_counter()
            requests = self.decoder.decode(way, self._jobs(epoch), self.known.get(epoch, []), memory.learn)
            seconds = time.perf_counter() - begin
        answers, stats = [each.generated for each in requests], [each.stats for each in requests]
        row = {
            "epoch": epoch + 1,
            "way": way,
            "answers": len(answers),
            "tokens": sum(map(len, answers)),
            "passes": sum(each.steps for each in stats),
            "drafted_tokens": sum(each.nodes_verified for each in stats),
            "accepted_tokens": sum(each.accepted for each in stats),
            "seconds": seconds,
            "keeping_seconds": memory.seconds - kept,
        }
        return row, answers


def _known_answers(options: RolloutOptions, target: Target, encoded: Encoded) -> dict[int, Answers]:
    """Map epochs to the answers that are known before the methods run: answers of an earlier model, and all answers if there is a
    file."""
    file, known = AnswerFile(options.answers), dict[int, Answers]()
    if options.earlier_model:
        decoding = replace(options.decoding, model=options.earlier_model)
        earlier = load_target(decoding)
        if earlier.vocab_size != target.vocab_size:
            raise InvalidArgument(
                f"earlier model {options.earlier_model} has {earlier.vocab_size} token ids, the model {target.vocab_size}; "
                "choose one with the same tokenizer"
            )
        known[0] = plain_answers(replace(options, decoding=decoding), earlier, encoded, 0, file)
    if options.answers is not None:
        for epoch in range(len(options.temperatures)):
            if epoch not in known:
                known[epoch] = plain_answers(options, target, encoded, epoch, file)
    return known


def summarize(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row for each epoch and method. Epochs are in order, and plain decoding comes first."""
    plain = {row["epoch"]: _rate(row) for row in rows if row["way"] == PLAIN}
    ordered = sorted(rows, key=lambda row: (row["epoch"], row["way"] != PLAIN))
    return [_summary(row, plain[row["epoch"]]) for row in ordered]


def _summary(row: dict[str, Any], plain_rate: float) -> dict[str, Any]:
    return row | {
        "tokens_per_second": _rate(row),
        "speed_up": _rate(row) / plain_rate,
        "mean_generated_length": (row["tokens"] - row["answers"]) / row["passes"] if row["passes"] else 1.0,
        "keeping_microseconds_a_token": 1e6 * row["keeping_seconds"] / row["tokens"],
    }


def _rate(row: dict[str, Any]) -> float:
    return float(row["tokens"] / row["seconds"])


def tables(results: dict[str, Any]) -> list[str | Table]:
    """The table."""
    return [Table.of(COLUMNS, results["summary"]), *skipped_lines(results)]


def plots(results: dict[str, Any]) -> list[Panel]:
    """Plot speed-up and mean generated length by method, one bar an epoch."""
    summary = results["summary"]
    ways = list(dict.fromkeys(each["way"] for each in summary))
    epochs = sorted({each["epoch"] for each in summary})

    def by_epoch(field: str) -> dict[str, list[float]]:
        return {f"epoch {epoch}": [each[field] for each in summary if each["epoch"] == epoch] for epoch in epochs}

    return [
        Panel("speed-up", "times plain decoding", ways, by_epoch("speed_up")),
        Panel("M", "tokens per pass", ways, by_epoch("mean_generated_length")),
    ]
