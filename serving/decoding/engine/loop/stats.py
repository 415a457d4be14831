"""Counts and seconds of requests and of the step loop."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from suffolk.serving.decoding.engine.loop.draft_options import PREDICTION_SOURCE_ID
from suffolk.serving.decoding.engine.loop.draft_stats import DraftCounts

PARTS = ("prefill", "draft", "wait", "forward", "verify", "compact", "other")


class Clock:
    """Measures the seconds of each part of a step. Not thread-safe."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, part: str) -> None:
        """Add the time since the last lap to ``part``."""
        now = time.perf_counter()
        self.seconds[part] = self.seconds.get(part, 0.0) + now - self._last
        self._last = now


@dataclass(slots=True)
class Counts:
    """Counts of one request or of many. The pass that ends a prompt generates the first token; it is not a step.

    Attributes:
        tokens: generated tokens, including the first.
        steps: passes of the target after the pass that ends the prompt.
        draft_calls: steps in which a drafter was called.
        drafted_steps: steps in which drafted nodes were verified.
        drafted: drafted tokens by source and depth; ``nodes_proposed``, ``nodes_verified``, ``accepted`` and
            ``earned`` are their sums.
        draft_failures: failed drafts by reason: errors caught by the loop and failures reported by drafters.
        seconds: by part: prefill, draft (size the trees and lay them out), wait (for drafters), forward, verify, compact (the
            cache), other.
    """

    tokens: int = 0
    steps: int = 0
    draft_calls: int = 0
    drafted_steps: int = 0
    drafted: DraftCounts = field(default_factory=DraftCounts)
    draft_failures: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))

    @property
    def nodes_proposed(self) -> int:
        return self.drafted.proposed.total()

    @property
    def nodes_verified(self) -> int:
        return self.drafted.verified.total()

    @property
    def accepted(self) -> int:
        return self.drafted.accepted.total()

    @property
    def earned(self) -> int:
        return self.drafted.earned.total()

    def add_tokens(self, sources: tuple[int, ...]) -> None:
        """Count the tokens that one pass added. ``sources``: as in ``DraftCounts.add_tokens``."""
        self.tokens += len(sources)
        self.drafted.add_tokens(sources)

    def add_seconds(self, parts: Mapping[str, float]) -> None:
        """Add the seconds of one step, by part."""
        for part, seconds in parts.items():
            self.seconds[part] += seconds

    def to_dict(self) -> dict[str, Any]:
        """A copy of all fields and derived values, ready for JSON."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        copies = {name: dict(value) for name, value in found.items() if isinstance(value, dict)}
        sums = {name: getattr(self, name) for name in ("nodes_proposed", "nodes_verified", "accepted", "earned")}
        return found | copies | {"drafted": self.drafted.rows()} | self.drafted.by_source() | sums


@dataclass(slots=True)
class GenerationStats(Counts):
    """Counts and seconds of one request. Its seconds are the full durations of all steps that it took part in.

    Attributes:
        prompt_tokens: length of the prompt.
        cached_tokens: prompt tokens that were not read, because the request took over the rows of another request.
        rejected_prediction_tokens: tokens of the predicted text that are not in the generated text, by a shortest diff; 0 without
            a prediction. The number depends only on the two texts, not on the drafts.
        finish: finish reason: eos, stop, length (max_new_tokens), context (the model's limit), cancelled or error; empty while
            the request runs.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    rejected_prediction_tokens: int = 0
    finish: str = ""

    @property
    def accepted_prediction_tokens(self) -> int:
        """Generated tokens that were drafted from the predicted text, whether or not other sources drafted them too.

        Each step also samples one token from the target. This token is not counted, even if the prediction has it.
        """
        return sum(count for (source, _), count in self.drafted.accepted.items() if source >> PREDICTION_SOURCE_ID & 1)

    @property
    def mean_generated_length(self) -> float:
        """M: generated tokens per target pass, after the prompt's pass; 1.0 in plain decoding."""
        return (self.tokens - 1) / self.steps if self.steps else 1.0

    @property
    def decode_seconds(self) -> float:
        return sum(self.seconds.values()) - self.seconds["prefill"]

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens per second, without the first token and the prompt's passes."""
        return (self.tokens - 1) / self.decode_seconds if self.decode_seconds > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        derived = ("accepted_prediction_tokens", "mean_generated_length", "decode_seconds", "tokens_per_second")
        return Counts.to_dict(self) | {name: getattr(self, name) for name in derived}


@dataclass(slots=True)
class LoopStats(Counts):
    """Sums over all requests of a step loop, including running ones.

    There is no part ``prefill``: its seconds are in the other parts.

    Attributes:
        passes: forward passes of the target.
        rows: rows of all passes.
        batched_requests: number of requests in each pass, summed over passes.
        prompt_tokens: prompt tokens read.
        cached_tokens: prompt tokens that ended requests took over from other requests.
        requests: requests that have ended.
        finished: requests that have ended, by finish reason.
        draft_failures: failed drafts of requests that have ended; ``StepLoop.totals`` adds the failures of running
            requests.
    """

    passes: int = 0
    rows: int = 0
    batched_requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    requests: int = 0
    finished: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS[1:], 0.0))

    def add_step(self, requests: int, rows: int, parts: Mapping[str, float]) -> None:
        """Add one pass over ``requests`` requests and ``rows`` rows, with its seconds by part."""
        self.passes += 1
        self.rows += rows
        self.batched_requests += requests
        self.add_seconds(parts)

    def add_request(self, stats: GenerationStats) -> None:
        """Add a request that has ended."""
        self.requests += 1
        self.finished[stats.finish] += 1
        self.cached_tokens += stats.cached_tokens
        self.draft_failures.update(stats.draft_failures)
