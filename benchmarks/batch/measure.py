"""Measures engine throughput at several batch sizes, with and without drafts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from suffolk.benchmarks.decode.options import PLAIN, DecodingOptions
from suffolk.benchmarks.decode.report import PACKAGES as PACKAGES
from suffolk.benchmarks.decode.setup import opened_engine, target_facts
from suffolk.benchmarks.parts import keep
from suffolk.benchmarks.plot import Panel, series
from suffolk.build_index.progress import show_part
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.text_table import Table
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.loop.generation import Generation
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.near_tie import first_difference
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings

HEADERS = ("batch, drafter", "requests", "tokens/s", "speed-up", "least", "tokens a pass", "as the first plain run")
NOTES = (
    "tokens/s: engine throughput including prompts, median of rounds; speed-up: over plain decoding at the same batch "
    "size; least: the worst round",
    "tokens a pass: tokens per request and target pass; passes that read part of a prompt count too",
    "as the first plain run: outputs that equal the first plain output of their prompt, token for token, at any batch "
    "size",
)


@dataclass(frozen=True, slots=True)
class BatchRun:
    """One run of one method at one batch size. ``outputs``: the tokens of each request. ``seconds``: wall time.

    ``batched_requests``: number of requests in each pass, summed over passes.
    """

    size: int
    way: str
    outputs: list[list[int]]
    batched_requests: int
    seconds: float

    @property
    def tokens(self) -> int:
        return sum(map(len, self.outputs))

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds


BatchEntry = list[tuple[int, BatchRun]]
"""One batch size in one round. For each method: the round's number, and the method's run."""
Compared = tuple[int, dict[str, Any] | None]
"""Number of output tokens compared, and the first difference, if there is one."""


def measure_batches(options: DecodingOptions, sizes: Sequence[int]) -> dict[str, Any]:
    """Run the prompts through one engine at every batch size with every method, in turn; return the results by name.

    A finished request is replaced by the next, so the batch stays full until no request waits. All methods and sizes run the same
    requests: all prompts, repeated if they are fewer than twice the largest batch size. After Ctrl-C, a batch
    size counts in a round only if all methods have completed it there.

    Raises:
        InvalidArgument: a size is below 1.
        NotFound, Unsupported: the model, datastore or prompts are missing or do not fit together.
    """
    if not sizes or min(sizes) < 1:
        raise InvalidArgument(f"batch sizes {list(sizes)}; they must be 1 or more")
    with opened_engine(options, max(sizes), queue=0, prefix_reuse=True) as opened:
        engine, encoded = opened.engine, opened.encoded
        cache_bytes = engine.cache_bytes
        texts = [encoded[number % len(encoded)][1] for number in range(max(len(encoded), 2 * max(sizes)))]
        turns = _compared(_run_rounds(engine, texts, sizes, options), engine.target, texts, options.settings)
        kept, stopped = keep(turns, options.rounds * len(sizes), options.in_all_rounds("batch sizes"))
    runs = [run for turn, _ in kept for run in turn]
    done = [size for size in sizes if any(run.size == size for _, run in runs)]
    return {
        "stopped": stopped,
        "target": target_facts(engine.target),
        "costs": {"source": opened.costs_source, "slowdown": engine.slowdown},
        "cache_bytes": cache_bytes,
        "prompts_skipped": opened.skipped,
        "batches": {str(size): _summary([run for _, run in runs if run.size == size], runs[0][1]) for size in done},
        "near_ties": _near_ties([pair for _, compared in kept for pair in compared]),
    }


def run_batch(
    engine: Engine,
    texts: Sequence[Sequence[int]],
    size: int,
    way: str,
    settings: SamplingSettings,
    max_nodes: int,
) -> BatchRun:
    """Run the prompts ``texts``, ``size`` at a time."""
    before = engine.stats()
    begin = time.perf_counter()
    running: list[Generation] = []
    done: list[Generation] = []
    for text in texts:
        while len(running) == size:
            done += [each for each in running if each.ended]
            running = [each for each in running if each not in done]
            if len(running) == size:
                next(running[0], None)
        running.append(engine.generate(text, settings, "none" if way == PLAIN else way, max_nodes))
    for generation in running:
        list(generation)
    seconds = time.perf_counter() - begin
    outputs = [each.tokens for each in sorted([*done, *running], key=lambda each: each.request.number)]
    return BatchRun(size, way, outputs, engine.stats()["batched_requests"] - before["batched_requests"], seconds)


def _run_rounds(
    engine: Engine, texts: Sequence[Sequence[int]], sizes: Sequence[int], options: DecodingOptions
) -> Iterator[BatchEntry]:
    """Yield the round's number and the run of every method, for each round and batch size. A warm-up comes first."""
    settings = options.settings
    run_batch(engine, texts[:1], 1, PLAIN, settings, 1)
    for number in range(1, options.rounds + 1):
        for size in sizes:
            runs = []
            for way in options.ways if number % 2 else options.ways[::-1]:
                run = run_batch(engine, texts, size, way, settings, options.max_nodes)
                runs.append((number, run))
                show_part(f"round {number}, batch {size}: {way} {run.rate:.1f} tokens/s")
            yield runs


def _compared(
    turns: Iterator[BatchEntry],
    target: Target,
    texts: Sequence[Sequence[int]],
    settings: SamplingSettings,
) -> Iterator[tuple[BatchEntry, list[Compared]]]:
    """Yield each turn, with the differences of its outputs from the first run's outputs."""
    first: BatchRun | None = None
    for turn in turns:
        found: list[Compared] = []
        for number, run in turn:
            if first is None:
                first = run
                continue
            for request, (one, other) in enumerate(zip(first.outputs, run.outputs, strict=True)):
                difference = first_difference(target, texts[request], one, other, settings)
                if difference is None:
                    found.append((len(other), None))
                    continue
                place = {"round": number, "batch": run.size, "drafter": run.way, "request": request}
                found.append((difference.position + 1, place | asdict(difference)))
        yield turn, found


def _near_ties(compared: Sequence[Compared]) -> dict[str, Any]:
    """Summarise the differences from the first run's outputs, and the number of compared tokens."""
    tokens = sum(each for each, _ in compared)
    differences = [each for _, each in compared if each is not None]
    return {
        "tokens_compared": tokens,
        "per_100000_tokens": 100_000 * len(differences) / tokens if tokens else 0.0,
        "largest_gap": max((each["gap"] for each in differences), default=0.0),
        "differences": differences,
    }


def _summary(runs: Sequence[BatchRun], first: BatchRun) -> dict[str, dict[str, Any]]:
    """The results of each method at one batch size."""
    ways = {way: [run for run in runs if run.way == way] for way in dict.fromkeys(run.way for run in runs)}
    plain = median(run.rate for run in ways[PLAIN])
    found = {}
    for way, runs in ways.items():
        rate = median(run.rate for run in runs)
        found[way] = {
            "tokens_per_second": rate,
            "speed_up": rate / plain,
            "speed_up_least": min(run.rate / other.rate for run, other in zip(runs, ways[PLAIN], strict=True)),
            "tokens_per_pass": sum(run.tokens for run in runs) / sum(run.batched_requests for run in runs),
            "identical": sum(
                output == text for run in runs for output, text in zip(run.outputs, first.outputs, strict=True)
            ),
            "requests": sum(len(run.outputs) for run in runs),
        }
    return found


def tables(results: dict[str, Any]) -> list[str | Table]:
    """The table, with facts about it."""
    rows = [
        (
            f"{size}: {way}",
            each["requests"],
            each["tokens_per_second"],
            each["speed_up"],
            each["speed_up_least"],
            each["tokens_per_pass"],
            f"{each['identical']}/{each['requests']}",
        )
        for size, ways in results["batches"].items()
        for way, each in ways.items()
    ]
    memory = f"engine cache: {results['cache_bytes'] / 2**20:.0f} MiB"
    return [Table(HEADERS, rows), memory, *_tie_lines(results)]


def plots(results: dict[str, Any]) -> list[Panel]:
    """Plot tokens a second and speed-up by batch size."""
    batches = results["batches"]
    sizes, rows = list(batches), batches.values()
    ways = list(batches[sizes[0]])
    drafting = [way for way in ways if way != PLAIN]
    return [
        Panel("throughput by batch size", "tokens a second", sizes, series(rows, ways, "tokens_per_second")),
        Panel("speed-up by batch size", "times plain decoding", sizes, series(rows, drafting, "speed_up")),
    ]


def _tie_lines(results: dict[str, Any]) -> list[str]:
    """Lines about near-ties; empty if the target computes the same bits in every batch and no texts differ."""
    ties = results["near_ties"]
    if results["target"]["same_bits"] and not ties["differences"]:
        return []
    return [
        f"near-ties: {len(ties['differences'])} in {ties['tokens_compared']} tokens, {ties['per_100000_tokens']:.1f} per 100,000; "
        f"largest gap {ties['largest_gap']:.2g}",
        "near-tie: two tokens have nearly equal scores, and rounding (fp32, bf16) picks a different one in another batch or "
        "tree; gap: difference of the two scores, which are logits if greedy, else logits plus noise",
    ]
