"""The step loop: propose, verify in one pass of the target, keep what matches, tell the drafter."""

from __future__ import annotations

import itertools
import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from datastore.draft_tree import DraftTree
from datastore.errors import InvalidArgument, SuffolkError
from serving.decoding import cost_curve
from serving.decoding.cost_curve import CostCurve
from serving.decoding.drafter import Drafter, DraftRequest
from serving.decoding.log_probabilities import LogProbability, log_probabilities
from serving.decoding.memory import memory_guard
from serving.decoding.planner import Planner
from serving.decoding.row_contexts import RowContexts
from serving.decoding.sampler import Sampler
from serving.decoding.settings import SamplingSettings
from serving.decoding.stats import GenerationStats
from serving.decoding.target import Target
from serving.decoding.text_stream import TextStream
from serving.decoding.tree_attention import cut, lay_out
from serving.decoding.verification import accept

log = logging.getLogger(__name__)

Tokens = Sequence[int] | npt.NDArray[np.integer[Any]]
_request_ids = itertools.count(1)
_MISSED = "missed "


@dataclass(frozen=True, slots=True)
class Step:
    """What one target pass gave.

    Attributes:
        tokens: one or more token ids, in order.
        sources: for each, the ``Source`` bits of the accepted draft node; 0 for the target's own draw.
        pieces: (text, source bits) that became safe to show; empty without a tokenizer.
        finish: why the text ends with this step (eos, stop, length, context), else empty.
    """

    tokens: tuple[int, ...]
    sources: tuple[int, ...]
    pieces: tuple[tuple[str, int], ...]
    finish: str


class Decoder:
    """Generates with a target and, if given, a drafter. One request at a time; not thread-safe.

    The output for a prompt and its settings does not depend on the drafter, nor on the cost curve. Without a drafter it is
    plain decoding: the same loop, with trees of size 0.
    """

    def __init__(
        self, target: Target, drafter: Drafter | None = None, curve: CostCurve | None = None, max_nodes: int = 64
    ) -> None:
        """``curve``: the target's costs, None to measure them now if there is a drafter. ``max_nodes``: 1..1024 per tree."""
        if not 1 <= max_nodes <= 1024:
            raise InvalidArgument(f"max_nodes is {max_nodes}; it must be between 1 and 1024")
        self.target = target
        self.drafter = drafter
        self.max_nodes = max_nodes
        if drafter is not None and curve is None:
            curve = cost_curve.measure(target)
        self.planner = None if curve is None else Planner(curve)

    def generate(self, prompt: Tokens, settings: SamplingSettings) -> Generation:
        """Start on ``prompt``; iterate over the result to run it.

        Raises:
            InvalidArgument: the prompt is empty, has ids outside the vocabulary, or fills the model's context; or stop strings
                are asked of a target without a tokenizer.
            ResourceExhausted: no memory for the cache.
        """
        return Generation(self, prompt, settings)


class Generation(Iterator[Step]):
    """One running request: an iterator of steps, with ``tokens`` (generated so far) and ``stats``. Closing it early is fine."""

    def __init__(self, decoder: Decoder, prompt: Tokens, settings: SamplingSettings) -> None:
        target = decoder.target
        ids = _checked_prompt(prompt, target)
        if settings.stop and target.tokenizer is None:
            raise InvalidArgument(f"stop strings need a tokenizer; model {target.name} was loaded without one")
        room = settings.max_new_tokens
        if target.context_length is not None:
            room = min(room, target.context_length - len(ids))
        self.stats = GenerationStats(prompt_tokens=len(ids))
        self._target, self._drafter, self._planner = target, decoder.drafter, decoder.planner
        self._settings = settings
        self._max_nodes = decoder.max_nodes
        self._cache = target.new_cache(len(ids) + room + (decoder.max_nodes if decoder.drafter else 0))
        self._ids = np.empty(len(ids) + room, np.int32)
        self._ids[: len(ids)] = ids
        self._length = len(ids)
        self._sampler = Sampler(settings, target.vocab_size, target.device)
        self._text = None if target.tokenizer is None else TextStream(target.tokenizer, settings.stop)
        self._log_probabilities: list[LogProbability] = []
        self._request = next(_request_ids)
        if self._planner is not None:
            self._planner.begin()
        self._missed_before = self._missed_by_drafter()

    @property
    def tokens(self) -> list[int]:
        """The tokens generated so far."""
        return [int(token) for token in self._ids[self.stats.prompt_tokens : self._length]]

    @property
    def log_probabilities(self) -> list[LogProbability]:
        """Those of ``tokens``, if ``logprobs`` was set; else empty."""
        return self._log_probabilities[: len(self.tokens)]

    def __next__(self) -> Step:
        if self.stats.finish:
            raise StopIteration
        with memory_guard(f"model {self._target.name}, {self._length} tokens"):
            step = self._step() if self._cache.length else self._first()
        if step.finish:
            self.close()
        return step

    def close(self) -> None:
        """End the request, as running to its end does; calling it again does nothing."""
        if self._drafter is not None and self._request:
            self._drafter.release(self._request)
            self.stats.missed.update(self._missed_by_drafter() - self._missed_before)
        self._request = 0
        self.stats.finish = self.stats.finish or "closed"

    def _first(self) -> Step:
        begin = time.perf_counter()
        logits = self._target.prefill(self._ids[: self._length], self._cache)
        drawn = self._draw(logits, DraftTree.empty())
        self._note_logprobs(logits, drawn)
        step = self._commit(drawn, np.empty(0, np.int64), DraftTree.empty())
        self.stats.seconds["prefill"] += time.perf_counter() - begin
        return step

    def _step(self) -> Step:
        clock = _Clock(self.stats.seconds)
        proposed, tree = self._propose()
        drafting = clock.lap("draft")
        layout = lay_out(int(self._ids[self._length - 1]), tree)
        clock.lap("other")
        logits = self._target.forward_tree(layout, self._cache)
        self._target.synchronize()
        forward = clock.lap("forward")
        drawn = self._draw(logits, tree)
        path = accept(tree.tokens, tree.parents, drawn)
        verify = clock.lap("verify")
        self._compact(path)
        compact = clock.lap("compact")
        before = self._length
        rows = np.concatenate([[0], path + 1])
        self._note_logprobs(logits[torch.from_numpy(rows).to(logits.device)], drawn[rows])
        step = self._commit(drawn[rows], path, tree)
        self.stats.steps += 1
        if proposed:
            self._tell(before)
        if self._planner is not None:
            cost = forward + verify + compact
            self._planner.record(self._length - before, drafting + cost, proposed, len(tree) + 1, cost)
        clock.lap("other")
        return step

    def _propose(self) -> tuple[bool, DraftTree]:
        """Whether the drafter was asked, and the tree to verify: valid, worth its time, and no deeper than the text can get."""
        room = len(self._ids) - self._length - 1
        if self._drafter is None or self._planner is None or room < 1 or not self._planner.should_propose():
            return False, DraftTree.empty()
        self.stats.proposals += 1
        tree = self._ask(self._drafter)
        self.stats.nodes_proposed += len(tree)
        tree = cut(tree.head(self._planner.choose(tree.scores)), room)
        self.stats.nodes_verified += len(tree)
        return True, tree

    def _ask(self, drafter: Drafter) -> DraftTree:
        try:
            request = DraftRequest(self._request, self._ids[: self._length], self._max_nodes)
            (tree,) = drafter.propose([request])
            return checked_tree(tree, self._target.vocab_size, self._max_nodes)
        except (SuffolkError, ValueError, TypeError, AttributeError) as error:
            self._miss(drafter, error)
            return DraftTree.empty()

    def _tell(self, before: int) -> None:
        assert self._drafter is not None
        try:
            self._drafter.observe(self._request, self._ids[before : self._length])
        except SuffolkError as error:
            self._miss(self._drafter, error)

    def _miss(self, drafter: Drafter, error: Exception) -> None:
        reason = type(error).__name__
        if not self.stats.missed[reason]:
            log.warning("drafter %s: %s; going on without its draft", drafter.name, error)
        self.stats.missed[reason] += 1

    def _draw(self, logits: torch.Tensor, tree: DraftTree) -> npt.NDArray[np.int64]:
        """The target's token at each row; the step's one copy from device to host."""
        contexts = RowContexts.of_tree(self._ids[: self._length], self.stats.prompt_tokens, tree)
        with torch.inference_mode():
            return np.asarray(self._sampler.draw(logits, contexts).cpu().numpy(), np.int64)

    def _note_logprobs(self, logits: torch.Tensor, tokens: npt.NDArray[np.int64]) -> None:
        if self._settings.logprobs is not None:
            with torch.inference_mode():
                drawn = torch.from_numpy(tokens).to(logits.device)
                self._log_probabilities += log_probabilities(logits, drawn, self._settings.logprobs)

    def _compact(self, path: npt.NDArray[np.int64]) -> None:
        if np.array_equal(path, np.arange(len(path))):  # already in place
            self._cache.advance(len(path) + 1)
        else:
            rows = torch.from_numpy(np.concatenate([[0], path + 1]))
            with torch.inference_mode():
                self._cache.keep(rows.to(self._target.device))

    def _commit(self, drawn: npt.NDArray[np.int64], path: npt.NDArray[np.int64], tree: DraftTree) -> Step:
        """Append the drawn tokens up to where plain decoding would have ended."""
        marks = [int(tree.sources[node]) for node in path] + [0]
        tokens: list[int] = []
        pieces: list[tuple[str, int]] = []
        for token, source in zip(drawn.tolist(), marks, strict=True):
            tokens.append(token)
            self._ids[self._length] = token
            self._length += 1
            if self._text is not None:
                pieces += self._text.push(token, source)
            self.stats.finish = self._finish(token)
            if self.stats.finish:
                break
        if self.stats.finish and self._text is not None:
            pieces += self._text.finish()
        self.stats.tokens += len(tokens)
        self.stats.accepted_by_source.update(source for source in marks[: len(tokens)] if source)
        return Step(tuple(tokens), tuple(marks[: len(tokens)]), tuple(pieces), self.stats.finish)

    def _finish(self, token: int) -> str:
        if token in self._target.eos_ids and not self._settings.ignore_eos:
            return "eos"
        if self._text is not None and self._text.stopped:
            return "stop"
        if self._length - self.stats.prompt_tokens == self._settings.max_new_tokens:
            return "length"
        return "context" if self._length == len(self._ids) else ""

    def _missed_by_drafter(self) -> Counter[str]:
        counters = {} if self._drafter is None else self._drafter.stats()
        return Counter({key[len(_MISSED) :]: int(value) for key, value in counters.items() if key.startswith(_MISSED)})


class _Clock:
    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds
        self._last = time.perf_counter()

    def lap(self, part: str) -> float:
        """Books the time since the last lap under ``part`` and returns it."""
        now = time.perf_counter()
        passed, self._last = now - self._last, now
        self._seconds[part] += passed
        return passed


def checked_tree(tree: DraftTree, vocab_size: int, max_nodes: int) -> DraftTree:
    """``tree`` cut to ``max_nodes``, if its nodes and scores are sound.

    Raises:
        InvalidArgument: it is no tree over this vocabulary, an array has the wrong type, or a score is not in 0..1.
    """
    for name, kind in (("tokens", "i"), ("parents", "i"), ("scores", "f"), ("sources", "u")):
        array = getattr(tree, name)
        if array.ndim != 1 or array.dtype.kind != kind:
            raise InvalidArgument(
                f"draft tree: {name} is {array.dtype}[{array.ndim} axes]; it must be as DraftTree documents it"
            )
    tree = replace(tree, counts=None).validate(vocab_size).head(max_nodes)
    if len(tree) and not bool(np.all((tree.scores >= 0) & (tree.scores <= 1))):  # refuses NaN too
        raise InvalidArgument(
            f"draft tree: scores reach from {tree.scores.min()} to {tree.scores.max()}; they must be within 0..1"
        )
    return tree


def _checked_prompt(prompt: Tokens, target: Target) -> npt.NDArray[np.int32]:
    ids = np.asarray(prompt, np.int64)
    if ids.ndim != 1 or not len(ids):
        raise InvalidArgument("the prompt is empty; give at least one token")
    if ids.min() < 0 or ids.max() >= target.vocab_size:
        raise InvalidArgument(
            f"the prompt has ids {ids.min()}..{ids.max()}; model {target.name} has {target.vocab_size}"
        )
    if target.context_length is not None and len(ids) >= target.context_length:
        raise InvalidArgument(
            f"the prompt has {len(ids)} tokens; model {target.name} takes {target.context_length} in all; shorten the prompt"
        )
    return ids.astype(np.int32)
