"""Decides whether to run a source. It runs if its expected tokens save more time than it takes, or as a rare trial."""

from __future__ import annotations

from dataclasses import dataclass

from suffolk.serving.engine.loop.draft_budget import DraftBudget
from suffolk.serving.engine.policy.acceptance_model import AddedTokens
from suffolk.serving.engine.policy.constants import FIRST_PAUSE, LONGEST_PAUSE
from suffolk.serving.engine.policy.speculation_budget import UsualTime


@dataclass(frozen=True, slots=True)
class GateDecision:
    """Whether a source runs for a request in this step, and why.

    Attributes:
        run: whether the source runs.
        explored: whether this is a trial, although the expected gain is below the cost.
        expected: tokens expected of the existing draft.
        gain: tokens that the source is expected to add.
        cost: time of the source in plain tokens; 0 if not known.
        declined: whether the source ran and returned no draft.
    """

    run: bool
    explored: bool
    expected: float
    gain: float
    cost: float
    declined: bool = False


class ExplorationTimer:
    """Schedules trials of a refused source: after 16 refusals, then after 32, 64 ... 256. Not thread-safe."""

    def __init__(self) -> None:
        self._refusals, self._pause = 0, FIRST_PAUSE

    def refuse(self) -> bool:
        """Count a refusal. Returns whether a trial is due."""
        self._refusals += 1
        if self._refusals < self._pause:
            return False
        self._refusals, self._pause = 0, min(2 * self._pause, LONGEST_PAUSE)
        return True

    def accept(self) -> None:
        """Reset the pause, because the source pays."""
        self._refusals, self._pause = 0, FIRST_PAUSE


class DraftGate:
    """Decides for one source whether it runs. Learns its time and its gain while decoding. Not thread-safe.

    Attributes:
        added: estimates the tokens that the source adds.
        ran: requests for which the source ran, summed over steps.
        skipped: requests for which the source did not run, summed over steps.
    """

    def __init__(self, prior: float) -> None:
        """``prior``: tokens expected of the source if there is no other draft."""
        self.added = AddedTokens(prior)
        self.ran = self.skipped = 0
        self._usual = UsualTime()
        self._timer = ExplorationTimer()

    @property
    def seconds(self) -> float:
        """Usual time of a draft for one request, in seconds; 0 until known."""
        return self._usual.seconds

    def decide(self, budget: DraftBudget) -> GateDecision:
        """Decide whether to run the source for a request, and count the decision."""
        gain = self.added.gain(budget.expected)
        cost = self.seconds / budget.token_seconds if budget.token_seconds else 0.0
        worth = not budget.token_seconds or gain * budget.value_seconds >= self.seconds
        pays = worth and self.seconds <= budget.model_seconds
        explored = False
        if pays:
            self._timer.accept()
        elif budget.model_seconds > 0:
            explored = self._timer.refuse()
        self.ran += pays or explored
        self.skipped += not (pays or explored)
        return GateDecision(pays or explored, explored, budget.expected, gain, cost)

    def learn_cost(self, seconds: float) -> None:
        """Learn that a draft took ``seconds`` for one request."""
        self._usual.add(seconds)
