"""Answers to requests for text: one JSON object, or a stream of chunks."""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from suffolk.datastore.version import __version__
from suffolk.serving.decoding.drafters.registry import source_name
from suffolk.serving.decoding.engine.loop.draft_stats import DraftCounts
from suffolk.serving.decoding.engine.loop.stats import GenerationStats
from suffolk.serving.decoding.engine.loop.step import Step
from suffolk.serving.net.metrics import CallOutcome
from suffolk.serving.worker.openai.bodies import GenerationBody, StreamOptions
from suffolk.serving.worker.openai.text_run import TextRun, TextRuns
from suffolk.serving.worker.openai.token_texts import TokenTexts
from suffolk.serving.worker.traces import TraceBudget

BodyT = TypeVar("BodyT", bound=GenerationBody)
FINISH = {"eos": "stop", "stop": "stop", "length": "length", "context": "length"}
"""Map from the engine's finish reason to OpenAI's."""


class Answer(ABC, Generic[BodyT]):
    """The answer to one request, whole or as a stream.

    Attributes:
        names_events: whether the events of a stream have names, and no [DONE] at the end.
    """

    names_events: ClassVar[bool] = False
    body: BodyT
    runs: TextRuns
    tokens: TokenTexts

    @abstractmethod
    async def whole(self, outcome: CallOutcome) -> dict[str, Any]:
        """The answer in one piece, once all texts have ended."""

    @abstractmethod
    def chunks(self, outcome: CallOutcome, interval: float) -> AsyncIterator[list[dict[str, Any]]]:
        """Yield the events of a stream, as lists of events to send together. ``interval``: as in ``StepJoiner``."""

    def failure(self, error: dict[str, Any]) -> dict[str, Any]:
        """The event for an error after the start, from the body of an error answer."""
        return error

    def metrics(self) -> dict[str, Any]:
        """The metrics of a single text; null if there are several texts, as in vLLM."""
        found = speculation(self.runs[0].stats, self.runs.shows_sources) if len(self.runs) == 1 else None
        return {"metrics": None if found is None else {"speculative_decoding": found}}


class ChoicesAnswer(Answer[BodyT]):
    """The answer of a chat or a completion: a list of choices, one for each text.

    Attributes:
        prefix: the start of the answer's id.
        kind: value of ``object`` in a whole answer.
        chunk_kind: value of ``object`` in a chunk.
    """

    prefix: ClassVar[str]
    kind: ClassVar[str]
    chunk_kind: ClassVar[str]

    def __init__(self, model: str, body: BodyT, runs: TextRuns, tokens: TokenTexts) -> None:
        self.body = body
        self.runs = runs
        self.tokens = tokens
        self._traces = TraceBudget(tokens.text)
        self._head = {
            "id": f"{self.prefix}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": f"suffolk-{__version__}",
        }

    @abstractmethod
    def choice(self, run: TextRun) -> dict[str, Any]:
        """The choice of a text that has ended."""

    @abstractmethod
    def deltas(self, run: TextRun, step: Step) -> list[dict[str, Any]]:
        """The choices of the chunks for ``step``. ``run`` already includes ``step``."""

    @abstractmethod
    def empty_delta(self, run: TextRun) -> dict[str, Any]:
        """The choice of a chunk without text."""

    async def whole(self, outcome: CallOutcome) -> dict[str, Any]:
        traces = defaultdict[int, list[dict[str, Any]]](list)  # index of a run -> its traces
        async for run, step in self.runs.steps(outcome):
            traces[run.index] += map(self._traces.json, step.traces)
        choices = [self.choice(run) | _suffolk(traces[run.index]) for run in self.runs]
        return {**self._head, "object": self.kind, "choices": choices, "usage": self.usage(), **self.metrics()}

    async def chunks(self, outcome: CallOutcome, interval: float) -> AsyncIterator[list[dict[str, Any]]]:
        options = self.body.stream_options or StreamOptions()
        ended, before = 0, None
        async for run, step in self.runs.steps(outcome, interval):
            chunks = [self._chunk([choice]) for choice in self._choices(run, step)]
            if options.include_usage:
                now = self.usage()
                before = before or {**now, "completion_tokens": 0, "total_tokens": now["prompt_tokens"]}
                shown = [before if _begins(chunk) else now for chunk in chunks]
                chunks = [
                    chunk | {"usage": counts if options.continuous_usage_stats else None}
                    for chunk, counts in zip(chunks, shown, strict=True)
                ]
                before = now
            ended += bool(step.finish)
            if ended == len(self.runs):
                if options.include_usage:
                    chunks.append(self._chunk([]) | {"usage": self.usage()})
                chunks[-1] |= self.metrics()
            yield chunks

    def usage(self) -> dict[str, Any]:
        """The token counts so far."""
        return usage(self.runs)

    def prompt_logprobs(self, run: TextRun) -> list[dict[str, Any] | None] | None:
        """``prompt_logprobs`` of vLLM, null for the first token; None if the request does not ask for it."""
        if self.body.prompt_logprobs is None:
            return None
        return [None, *map(self.tokens.prompt_entry, run.generation.prompt_log_probabilities)]

    def _choices(self, run: TextRun, step: Step) -> list[dict[str, Any]]:
        """``deltas``. The last choice has the step's traces, if there are any."""
        choices = self.deltas(run, step)
        if step.traces:
            choices = choices or [self.empty_delta(run)]
            choices[-1] |= _suffolk(list(map(self._traces.json, step.traces)))
        return choices

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {**self._head, "object": self.chunk_kind, "choices": choices}


def _begins(chunk: dict[str, Any]) -> bool:
    """Whether a chunk begins a message, and has no token yet."""
    return any("role" in choice.get("delta", {}) for choice in chunk["choices"])


def _suffolk(steps: list[dict[str, Any]]) -> dict[str, Any]:
    """The field for traces of a choice; none if there are no traces."""
    return {"suffolk": {"steps": steps}} if steps else {}


def speculation(stats: GenerationStats, shows_sources: bool) -> dict[str, Any] | None:
    """The metrics of one text; None if no draft was verified, and for callers that may not see sources.

    Nodes of trees count as draft tokens, and the longest verified path is ``num_spec_tokens``. ``by_source`` is an
    addition to vLLM's fields.
    """
    if not stats.drafted_steps or not shows_sources:
        return None
    deepest = max(depth for _, depth in stats.drafted.verified)
    return {
        "mean_acceptance_length": 1 + stats.accepted / stats.drafted_steps,
        "draft_acceptance_rate": stats.accepted / stats.nodes_verified,
        "acceptance_histogram": _histogram(stats.drafted, stats.drafted_steps, deepest),
        "num_spec_steps": stats.drafted_steps,
        "num_accepted_draft_tokens": stats.accepted,
        "num_draft_tokens": stats.nodes_verified,
        "num_spec_tokens": deepest,
        "by_source": _by_source(stats.drafted),
    }


def _histogram(drafted: DraftCounts, steps: int, deepest: int) -> list[int]:
    """Number of steps by accepted tokens, 0..deepest."""
    at_least = [steps] + [0] * (deepest + 1)
    for (_, depth), count in drafted.accepted.items():
        at_least[depth] += count
    return [more - fewer for more, fewer in zip(at_least, at_least[1:], strict=False)]


def _by_source(drafted: DraftCounts) -> dict[str, dict[str, int]]:
    names = {"num_draft_tokens": drafted.verified, "num_accepted_draft_tokens": drafted.accepted}
    found: dict[str, Counter[str]] = {}
    for name, counts in names.items():
        for (source, _), count in counts.items():
            found.setdefault(source_name(source), Counter())[name] += count
    return {source: {name: counts[name] for name in names} for source, counts in sorted(found.items())}


def usage(runs: Sequence[TextRun]) -> dict[str, Any]:
    """The counts of all texts of a request so far. A prompt with several texts counts once.

    Cached tokens of the prompt were not computed again, because the worker had their keys and values from another text with the
    same beginning.

    The counts of a prediction are present only if one was sent. Rejected tokens are prediction tokens that are missing
    from the text.
    """
    stats = [run.stats for run in runs]
    prompts = [run.stats for run in runs if run.first_of_prompt]
    prompt = sum(each.prompt_tokens for each in prompts)
    completion = sum(each.tokens for each in stats)
    counts: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(each.cached_tokens for each in prompts)},
    }
    if any(run.generate_call.options.prediction is not None for run in runs):
        counts["completion_tokens_details"] = {
            "accepted_prediction_tokens": sum(each.accepted_prediction_tokens for each in stats),
            "rejected_prediction_tokens": sum(each.rejected_prediction_tokens for each in stats),
        }
    return counts
