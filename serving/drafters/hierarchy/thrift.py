"""Whether a draft, or one more round of it, promises more than it takes: learned while decoding."""

from __future__ import annotations

import numpy as np

from suffolk.serving.drafters.neural.pay import PRIOR, STRENGTH
from suffolk.serving.drafters.neural.prospect import share_saved
from suffolk.serving.drafters.neural.refusals import Refusals
from suffolk.serving.engine.loop.drafter import DraftRequest
from suffolk.serving.engine.policy.cost_model import CostModel

_DECAY = 0.98


class Thrift:
    """What a round of the top level took and brought of late, against what its tokens save (``DraftRequest.worth_seconds``).

    A round behind tokens that are all accepted with chance v brings v times the tokens of a round, of which the target accepts the
    share that it accepted of late. A token saves the time in which it would have come anyway, with drafts as of late. That these
    are the levels' own is no contradiction: drafts that pay by the time of plain decoding pay by the shorter one that they bring
    about too, and a further round must beat what those before it reach. Not thread-safe.
    """

    def __init__(self, costs: list[CostModel]) -> None:
        """``costs``: of the passes of all levels that read texts."""
        self._costs = costs
        self._seconds = self._tokens = self._rounds = 0.0
        self._accepted = self._handed = 0.0
        self._refusals = Refusals()

    @property
    def share(self) -> float:
        """Of the tokens that the target looked at, those that it accepted; the last that it looks at is the first it refuses."""
        return (self._accepted + STRENGTH * PRIOR) / (self._handed + STRENGTH)

    def begins(self, worth_seconds: float) -> bool:
        """Whether to begin a draft where an accepted token saves ``worth_seconds`` (0: not known), a request's mean; counts."""
        return self._refusals.begins(self.pays(1.0, worth_seconds))

    def pays(self, value: float, worth_seconds: float) -> bool:
        """Whether one more round is worth its time behind tokens that are all accepted with chance ``value``."""
        if not worth_seconds or not self._rounds:
            return True
        length = self._tokens / self._rounds
        gain = self.share * (1 - self.share**length) / (1 - self.share) if self.share < 1 else length
        return value * gain * worth_seconds >= self._seconds / self._rounds

    def learn_rounds(self, rounds: int, tokens: int, seconds: float) -> None:
        """So many rounds of the top level, those of all requests together, took ``seconds`` and gave ``tokens``."""
        self._rounds = _DECAY * self._rounds + rounds
        self._tokens = _DECAY * self._tokens + tokens
        self._seconds = _DECAY * self._seconds + seconds

    def learn(self, accepted: int, handed: int) -> None:
        """The target accepted so many of the tokens that it was handed."""
        self._accepted = _DECAY * self._accepted + accepted
        self._handed = _DECAY * self._handed + min(handed, accepted + 1)

    def saving(self, depth: int, request: DraftRequest, requests: int) -> float:
        """See ``Saving``. Until rounds were made, a round is taken to cost a pass of every level."""
        if not self._rounds:
            context = float(len(request.tokens))
            taken = sum(each.time(requests, requests, context) for each in self._costs) / requests
        else:
            taken = self._seconds / self._rounds
        taken += depth * request.row_seconds
        accepted = float(np.sum(self.share ** np.arange(1, depth + 1)))
        return float(share_saved(accepted, taken / request.token_seconds, request.already)[0])

    def reading_seconds(self, tokens: int) -> float:
        """What reading a prompt of so many tokens should take all levels together."""
        return sum(each.time(tokens, 1, tokens / 2) for each in self._costs)
