"""Compares plain decoding to decoding with predicted texts, on the same prompts in one process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from suffolk.benchmarks.decode.measure import WARM_UP_TOKENS
from suffolk.benchmarks.decode.options import PLAIN
from suffolk.benchmarks.decode.report import PACKAGES as PACKAGES
from suffolk.benchmarks.decode.report import skipped_lines
from suffolk.benchmarks.decode.setup import (
    Encoded,
    capacity_for,
    encode_prompts,
    load_target,
    make_drafters,
    require_drafters,
    seconds_by_rows,
    target_facts,
)
from suffolk.benchmarks.decode.summary import token_rate, total
from suffolk.benchmarks.parts import keep, rotated
from suffolk.benchmarks.plot import Panel
from suffolk.benchmarks.prediction.edits import PredictionOptions, corrupted, edit_prompts
from suffolk.benchmarks.prompts import Prompt
from suffolk.build_index.progress import show_part
from suffolk.datastore.text_table import Table
from suffolk.serving.decoding.engine.costs.cost_store import find_costs
from suffolk.serving.decoding.engine.loop.draft_options import DraftOptions
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.loop.generation import Generation
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.near_tie import first_difference
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.decoding.replay.recording import Recording
from suffolk.serving.decoding.replay.replayer import Replayer

NO_PREDICTION = "no prediction"
_ALONE = "prediction"
"""The drafter that drafts nothing without a prediction."""
COLUMNS = {
    "drafter, prediction": "{way}",
    "speed-up": "{speed_up:.2f}",
    "least": "{speed_up_least:.2f}",
    "counted": "{counted_speed_up:.3f}",
    "M": "{mean_generated_length:.2f}",
    "accepted": "{accepted_prediction_share:.0%}",
    "rejected": "{rejected_prediction_share:.0%}",
    "identical": "{identical} of {runs}",
}
NOTES = (
    "prediction: the plain answer, with a share of its lines replaced by lines of other files",
    "speed-up: ratio of all tokens per second to plain decoding, without the prompt's pass; least: the worst prompt",
    "counted: the speed-up along the plain answers if a pass takes the measured time of its rows and drafting takes none; "
    "other programs do not change it",
    "M: tokens generated per target pass; accepted: share of the answer that was accepted from the prediction; rejected: share of "
    "the prediction that a shortest diff to the answer deletes",
    "identical: outputs equal to plain decoding's token for token",
    "every prompt is run in all ways in turn, in rotating order; each way has drafters and a budget of its own",
)


@dataclass(frozen=True, slots=True)
class PredictionWay:
    """A drafter, and the share of wrong lines in its predictions. The share is None if there is no prediction."""

    drafter: str
    share: float | None

    @property
    def name(self) -> str:
        return f"{self.drafter}, {NO_PREDICTION if self.share is None else f'{self.share:.0%} wrong'}"


def measure_predictions(options: PredictionOptions) -> dict[str, Any]:
    """Run the measurement to its end or to Ctrl-C; return the results by name.

    Each ``PredictionWay`` has its own drafters and its own planner budget. Both learn from one prompt to the next.

    Raises the errors of ``edit_prompts``, ``Target.load`` and ``make_drafter``.
    """
    prompts, decoding = edit_prompts(options), options.decoding
    require_drafters(decoding, [])  # before a model is loaded
    target = load_target(decoding)
    encoded, skipped = encode_prompts(target, prompts, decoding)
    found = find_costs(target, 1, decoding.costs)
    capacity = capacity_for(encoded, decoding)
    ways = [
        PredictionWay(drafter, share)
        for drafter in decoding.drafters
        for share in ((None,) if drafter != _ALONE else ()) + options.shares
    ]
    drafters = {way.name: make_drafters(decoding, target, [], 1, capacity)[way.drafter] for way in ways}
    counted = {
        way.name: Replayer(
            make_drafters(decoding, target, [], 1, capacity)[way.drafter],
            decoding.max_nodes,
            found.costs.copy(),
            draft_seconds=0.0,
        )
        for way in ways
    }
    with Engine(target, drafters, found.costs, slots=1, capacity=capacity, queue=0, prefix_reuse=False) as engine:
        turns = _Turns(engine, counted, ways, options).run(encoded)
        kept, stopped = keep(turns, len(encoded), "prompts")
    runs = [row for rows in kept for row in rows]
    return {
        "stopped": stopped,
        "target": target_facts(target),
        "costs": {"source": found.source, "seconds_by_rows": seconds_by_rows(found.costs)},
        "summary": summarize(runs, [way.name for way in ways]),
        "prompts_skipped": skipped,
        "runs": runs,
    }


@dataclass(frozen=True, slots=True)
class _Turns:
    """Decodes each prompt by plain decoding and in every ``PredictionWay``."""

    engine: Engine
    counted: dict[str, Replayer]
    ways: Sequence[PredictionWay]
    options: PredictionOptions

    def run(self, encoded: Encoded) -> Iterator[list[dict[str, Any]]]:
        """Yield the rows of each prompt: plain decoding, then the ways in rotating order."""
        rng = np.random.default_rng(self.options.decoding.seed)
        settings = SamplingSettings(self.options.decoding.max_new_tokens)
        _finished(self.engine.generate(encoded[0][1], SamplingSettings(WARM_UP_TOKENS)))
        for place, (prompt, ids) in enumerate(encoded):
            plain = _finished(self.engine.generate(ids, settings))
            others = [other.messages[0]["content"] for other, _ in encoded if other is not prompt]
            rows = [_row(prompt, PLAIN, plain, plain, self.engine.target)]
            for way in rotated(self.ways, place):
                rows.append(self._run(way, prompt, ids, settings, plain, others, rng))
            yield rows
            rates = ", ".join(f"{row['drafter']}: {row['tokens_per_second']:.1f}" for row in rows)
            show_part(f"{place + 1} of {len(encoded)} {prompt.name}: tokens/s {rates}")

    def _run(
        self,
        way: PredictionWay,
        prompt: Prompt,
        ids: list[int],
        settings: SamplingSettings,
        plain: Generation,
        others: Sequence[str],
        rng: np.random.Generator,
    ) -> dict[str, Any]:
        target, prediction = self.engine.target, None
        if way.share is not None:
            text = target.tokenizer.decode(plain.tokens, skip_special_tokens=True)
            prediction = corrupted(text, others, way.share, rng)
        max_nodes = self.options.decoding.max_nodes
        generation = self.engine.generate(ids, settings, way.name, max_nodes, DraftOptions(prediction))
        row = _row(prompt, way.name, _finished(generation), plain, target)
        recording = Recording.of(plain, target.vocab_size)
        replayed = self.counted[way.name].replay(recording, generation.request.prediction)
        return row | {"counted_seconds": replayed.seconds, "counted_plain_seconds": replayed.plain_seconds}


def _row(prompt: Prompt, way: str, generation: Generation, plain: Generation, target: Target) -> dict[str, Any]:
    stats = generation.stats
    difference = first_difference(
        target,
        plain.request.tokens[: plain.stats.prompt_tokens].tolist(),
        plain.tokens,
        generation.tokens,
        plain.request.settings,
    )
    predicted = 0 if generation.request.prediction is None else len(generation.request.prediction)
    return {
        "prompt": prompt.name,
        "drafter": way,
        "prediction_tokens": predicted,
        "speed_up": stats.tokens_per_second / plain.stats.tokens_per_second if plain.stats.steps else 1.0,
        "identical": difference is None,
        "near_tie_gap": 0.0 if difference is None else difference.gap,
        **stats.to_dict(),
    }


def _finished(generation: Generation) -> Generation:
    list(generation)
    return generation


def summarize(runs: Sequence[dict[str, Any]], ways: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Map each way to its numbers."""
    plain = [run for run in runs if run["drafter"] == PLAIN]
    return {way: _summary([run for run in runs if run["drafter"] == way], plain) for way in ways}


def _summary(runs: Sequence[dict[str, Any]], plain: Sequence[dict[str, Any]]) -> dict[str, Any]:
    tokens, steps = total(runs, "tokens"), total(runs, "steps")
    return {
        "runs": len(runs),
        "tokens": tokens,
        "speed_up": token_rate(runs) / token_rate(plain) if token_rate(plain) else 1.0,
        "speed_up_median": median(run["speed_up"] for run in runs),
        "speed_up_least": min(run["speed_up"] for run in runs),
        "counted_speed_up": total(runs, "counted_plain_seconds") / max(1e-9, total(runs, "counted_seconds")),
        "mean_generated_length": (tokens - len(runs)) / steps if steps else 1.0,
        "accepted_prediction_share": total(runs, "accepted_prediction_tokens") / tokens,
        "rejected_prediction_share": total(runs, "rejected_prediction_tokens")
        / max(1, total(runs, "prediction_tokens")),
        "identical": sum(run["identical"] for run in runs),
        "largest_near_tie_gap": max(run["near_tie_gap"] for run in runs),
    }


def tables(results: dict[str, Any]) -> list[str | Table]:
    """Return the table. It names the largest gap if texts may differ at a near-tie."""
    summary = results["summary"]
    gap = max(each["largest_near_tie_gap"] for each in summary.values())
    parts: list[str | Table] = [Table.of(COLUMNS, ({"way": name} | each for name, each in summary.items()))]
    if gap or not results["target"]["same_bits"]:
        parts.append(
            f"largest gap: {gap:.3g}, between the target's scores of the two tokens where an output differs (near 0: a near-tie "
            "that rounding decides)"
        )
    return [*parts, *skipped_lines(results)]


def plots(results: dict[str, Any]) -> list[Panel]:
    """Plot the measured speed-up, the counted speed-up, and the mean generated length."""
    summary = results["summary"]
    names = list(summary)
    speeds = {"by the clock": "speed_up", "counted": "counted_speed_up"}
    return [
        Panel(
            "speed-up",
            "times plain decoding",
            names,
            {title: [summary[name][field] for name in names] for title, field in speeds.items()},
        ),
        Panel("M", "tokens per pass", names, {"M": [summary[name]["mean_generated_length"] for name in names]}),
    ]
