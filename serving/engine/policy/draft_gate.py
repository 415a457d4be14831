"""Decides whether to draft: run a source if the tokens it should add are worth more than its time; else try it rarely."""

from __future__ import annotations

from dataclasses import dataclass

from suffolk.serving.engine.loop.draft_budget import DraftBudget
from suffolk.serving.engine.policy.acceptance_model import AddedTokens
from suffolk.serving.engine.policy.constants import ADAPTION, FIRST_PAUSE, LONGEST_PAUSE


@dataclass(frozen=True, slots=True)
class GateDecision:
    """Whether a source runs for a request in this step, and why.

    Attributes:
        run: the decision; explored: the source runs although it should not pay; declined: it ran and returned nothing.
        expected: tokens expected of the draft that is there; gain: tokens the source should add; cost: its time in plain tokens, 0
            if that is not known.
    """

    run: bool
    explored: bool
    expected: float
    gain: float
    cost: float
    declined: bool = False


class ExplorationTimer:
    """Says when to try what was refused: after 16 refusals, then ever more rarely. Not thread-safe."""

    def __init__(self) -> None:
        self._refusals, self._pause = 0, FIRST_PAUSE

    def refuse(self) -> bool:
        """Count a refusal; whether to try all the same."""
        self._refusals += 1
        if self._refusals < self._pause:
            return False
        self._refusals, self._pause = 0, min(2 * self._pause, LONGEST_PAUSE)
        return True

    def accept(self) -> None:
        """It pays: the next trial comes early again."""
        self._refusals, self._pause = 0, FIRST_PAUSE


class DraftGate:
    """Decides for one source beside others. Its time and what it adds are learned while decoding. Not thread-safe.

    Attributes:
        added: what the source adds.
        seconds: time of its drafts of late, for a request; 0 until that is known.
        ran, skipped: how often it ran for a request, and did not.
    """

    def __init__(self, prior: float) -> None:
        """``prior``: tokens that the source should bring alone."""
        self.added = AddedTokens(prior)
        self.seconds = 0.0
        self.ran = self.skipped = 0
        self._drafts = 0
        self._timer = ExplorationTimer()

    def decide(self, budget: DraftBudget) -> GateDecision:
        """Whether to run the source for a request, beside drafts of ``budget.expected`` tokens; counts."""
        gain = self.added.gain(budget.expected)
        cost = self.seconds / budget.token_seconds if budget.token_seconds else 0.0
        pays, explored = gain >= cost and self.seconds <= budget.model_seconds, False
        if pays:
            self._timer.accept()
        elif budget.model_seconds > 0:
            explored = self._timer.refuse()
        self.ran += pays or explored
        self.skipped += not (pays or explored)
        return GateDecision(pays or explored, explored, budget.expected, gain, cost)

    def learn_cost(self, seconds: float) -> None:
        """A draft took ``seconds`` for a request. The first few count alike."""
        self._drafts += 1
        self.seconds += max(ADAPTION, 1 / self._drafts) * (seconds - self.seconds)
