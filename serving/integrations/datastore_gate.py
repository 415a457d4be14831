"""Decides for which requests to search remote datastores, because a call to a draft service takes longer than a local search."""

from __future__ import annotations

from collections.abc import Sequence, Set

from suffolk.serving.decoding.engine.policy.acceptance_model import Estimate
from suffolk.serving.decoding.engine.policy.constants import TRIALS
from suffolk.serving.integrations.linear_costs import LinearCosts

_GAIN = 0.3
"""Prior gain of a search for one request, in tokens."""


class DatastoreGate:
    """Searches for the requests whose recent searches saved more time than they took. Not thread-safe.

    All other requests are searched for in rare trials, which are paid from a budget. A new request starts with the
    mean gain of all requests.
    """

    def __init__(self) -> None:
        self._costs = LinearCosts(seconds=1e-9)  # the first step searches
        self._overall = Estimate(_GAIN)
        self._gains: dict[int, Estimate] = {}
        self._saved = 0.0

    def open(self, number: int) -> None:
        """Start a request."""
        self._gains[number] = Estimate(self._overall.value)

    def close(self, number: int) -> None:
        """End a request."""
        del self._gains[number]

    def choose(self, numbers: Sequence[int], token_seconds: float, pass_seconds: float) -> Set[int]:
        """Return the requests among ``numbers`` to search for. Call once per step.

        Args:
            token_seconds: time that an accepted token saves.
            pass_seconds: time of the pass without drafts.
        """
        if not numbers:
            return set()
        gains = {number: self._gains[number].value * token_seconds for number in numbers}
        every = self._time(len(numbers))
        chosen = {number for number, gain in gains.items() if gain >= every / len(numbers)}
        if sum(gains[number] for number in chosen) < self._time(len(chosen)):
            chosen = set()
        self._saved += TRIALS * pass_seconds
        if len(chosen) == len(numbers) or self._saved < every - self._time(len(chosen)):
            return chosen
        self._saved = 0.0
        return set(numbers)

    def learn_time(self, requests: int, seconds: float) -> None:
        """Learn that a search for ``requests`` requests took ``seconds``."""
        self._costs.update(requests, requests, 0.0, seconds)

    def learn_gain(self, number: int, tokens: float) -> None:
        """Learn the gain of a search: accepted tokens that only datastores drafted, less the time of their rows.

        Tokens that a local datastore drafted too cannot be told apart, and count.
        """
        self._gains[number].add(tokens)
        self._overall.add(tokens)

    def _time(self, requests: int) -> float:
        return self._costs.time(requests, requests, 0.0) if requests else 0.0
