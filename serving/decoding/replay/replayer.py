"""Replays a drafter on recorded texts, with the engine's planner and without a target.

A drafted token counts as accepted if the recorded text continues with it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from suffolk.datastore import _native
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.tree_paths import path_along
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.draft_budget import DraftCandidate
from suffolk.serving.decoding.engine.loop.draft_stats import split_seconds
from suffolk.serving.decoding.engine.loop.drafter import (
    Drafter,
    DraftRequest,
    model_sources,
    only_from,
    tree_of,
)
from suffolk.serving.decoding.engine.loop.stats import GenerationStats
from suffolk.serving.decoding.engine.loop.verify_all_planner import VerifyAllPlanner
from suffolk.serving.decoding.engine.model.tree_layout import cut
from suffolk.serving.decoding.engine.policy.planner import Planner
from suffolk.serving.decoding.replay.recording import Recording

if TYPE_CHECKING:
    from suffolk.serving.decoding.replay.recorded_states import RecordedStates


SPARE = 100
"""Additional cache rows, beyond a text and its largest tree, for drafters that share the cache."""
PassSeconds = Callable[[int, float], float]
"""(rows, cached tokens) -> seconds of a target pass for one request."""


@dataclass(slots=True)
class Replayed:
    """Result of replaying one recording.

    Attributes:
        recording: the recording.
        stats: the engine's counts, without seconds and finish.
        plain_seconds: decoding time after the prompt without drafts, by the cost model; 0 without a cost model.
        seconds: decoding time after the prompt with drafts.
    """

    recording: Recording
    stats: GenerationStats
    plain_seconds: float = 0.0
    seconds: float = 0.0


class _ReplayState:
    """State of one replay: ``tokens[:length]`` is the text so far, and ``max_length`` its limit."""

    def __init__(self, number: int, result: Replayed, prediction: npt.NDArray[np.int32] | None) -> None:
        self.prediction = prediction
        self.number, self.result, self.recording = number, result, result.recording
        prompt = self.recording.prompt
        self.tokens = np.concatenate([prompt, self.recording.generated])
        self.tokens.flags.writeable = False
        self.length = len(prompt) + 1  # the prompt's pass yields the first token
        self.max_length = len(prompt) + self.recording.settings.max_new_tokens


class Replayer:
    """Replays texts one after the other; the drafter learns as in an engine with one slot. Not thread-safe.

    Attributes:
        drafter: the drafter; the caller closes it.
    """

    def __init__(
        self,
        drafter: Drafter,
        max_nodes: int = 64,
        costs: CostModel | None = None,
        states: RecordedStates | None = None,
        pass_seconds: PassSeconds | None = None,
        draft_seconds: float | None = None,
    ) -> None:
        """Prepare a replay.

        Args:
            max_nodes: largest tree, 1..1024.
            costs: the planner's initial cost model. None: every step drafts, and all nodes are verified.
            states: source of the target's states, for drafters that read states.
            pass_seconds: true duration of a pass. None: the duration by ``costs``.
            draft_seconds: assumed duration of a draft. None: the measured duration.
        """
        self.drafter = drafter
        self._max_nodes = max_nodes
        self._states = states
        self._planner = VerifyAllPlanner() if costs is None else Planner(costs.copy())
        self._by_costs = _by(costs)
        self._pass_seconds = pass_seconds or self._by_costs
        self._draft_seconds = draft_seconds
        self._model_sources = model_sources(drafter)
        self._numbers = itertools.count(1)

    def replay(self, recording: Recording, prediction: npt.NDArray[np.int32] | None = None) -> Replayed:
        """Replay one text from its second token to its end. Raises the errors of the drafter, which forgets the text in any case.

        ``prediction``: int32[k], the tokens of the request's predicted text.
        """
        stats = GenerationStats(prompt_tokens=len(recording.prompt))
        stats.add_tokens((0,))
        state = _ReplayState(next(self._numbers), Replayed(recording, stats), prediction)
        self._planner.open(state.number, self.drafter.name, self._model_sources != 0)
        failures = self._failures()
        if self._states is not None:
            self._states.begin(state.tokens, len(recording.prompt))
        try:
            self._advance(state)
            while state.length < len(state.tokens):
                self._step(state)
        finally:
            self.drafter.release(state.number)
            self._planner.close(state.number)
        stats.draft_failures["drafts"] = self._failures() - failures
        return state.result

    def _step(self, state: _ReplayState) -> None:
        stats, context = state.result.stats, state.length - 1
        candidates, tree = self._draft(state, context)
        path = path_along(tree.tokens, tree.parents, state.tokens[state.length :])
        new = min(len(path) + 1, len(state.tokens) - state.length)
        stats.add_tokens(tuple([*tree.sources[path].tolist(), 0][:new]))
        stats.steps += 1
        stats.drafted.add_tree("verified", tree)
        stats.drafted_steps += len(tree) > 0
        rows = 1 + len(tree)
        spent = self._pass_seconds(rows, context)
        begin, state.length = state.length, state.length + new
        learned = self._advance(state)
        for candidate in candidates:
            candidate.accept(path, new - 1)
            learning = time.perf_counter()
            self.drafter.observe({state.number: state.tokens[begin : state.length]})
            if self._draft_seconds is None:
                candidate.seconds += time.perf_counter() - learning + learned
            state.result.seconds += candidate.seconds + candidate.model_seconds + candidate.prefill_seconds
        self._planner.record(candidates, 1, rows, context, spent)
        state.result.seconds += spent
        state.result.plain_seconds += sum(self._by_costs(1, context + ahead) for ahead in range(new))

    def _advance(self, state: _ReplayState) -> float:
        """Pass the target's states of the text so far to the drafter. Returns the seconds that the drafter spent learning."""
        if self._states is None:
            return 0.0
        return self._states.advance(state.number, state.length, not self._planner.is_paused(state.number))

    def _draft(self, state: _ReplayState, context: int) -> tuple[list[DraftCandidate], DraftTree]:
        """The candidate of this step, if there is one, and the tree to verify."""
        room = state.max_length - state.length - 1
        if room <= 0 or not self._planner.may_draft(state.number):
            return [], DraftTree.empty()
        before, begin = self.drafter.stats(), time.perf_counter()
        proposal = tree_of(self.drafter.propose([self._request(state, context)])[0])
        seconds = time.perf_counter() - begin
        own, models, prefill = split_seconds(before, self.drafter.stats(), seconds)
        if self._draft_seconds is not None:
            own, models, prefill = self._draft_seconds, 0.0, 0.0
        [proposal] = _native.checked_trees([proposal], state.recording.vocab_size, [self._max_nodes])
        state.result.stats.draft_calls += 1
        state.result.stats.drafted.add_tree("proposed", proposal)
        tree = cut(proposal, room)
        of_models = only_from(tree, self._model_sources)
        candidate = DraftCandidate(state.number, tree.scores, of_models, own, models, prefill)
        self._planner.size_trees([candidate], 1, 1, context)
        return [candidate], tree.head(candidate.verified)

    def _request(self, state: _ReplayState, context: int) -> DraftRequest:
        return DraftRequest(
            state.number,
            state.tokens[: state.length],
            self._max_nodes,
            len(state.recording.prompt),
            state.recording.settings,
            -1 if self._states is None else self._states.slot,
            self._planner.draft_budget(state.number, 1, context),
            prediction=state.prediction,
        )

    def _failures(self) -> int:
        return int(self.drafter.stats().get("failed", 0))


def _by(costs: CostModel | None) -> PassSeconds:
    if costs is None:
        return lambda rows, context: 0.0
    fixed = costs.copy()
    return lambda rows, context: fixed.time(rows, 1, context)
