"""Decides how much of each request's draft to verify in a step, so that drafting pays or stops."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffolk.serving.engine.policy.account import ALLOWANCE, Purse
from suffolk.serving.engine.policy.cost_model import CostModel
from suffolk.serving.engine.policy.ledger import Ledger
from suffolk.serving.engine.policy.trust import Trust

_MARGIN = 1.02
"""Trees must promise this much over plain decoding: costs and scores are estimates."""
_STAKED, _LEAST_STAKE, _MOST_STAKE = 0.25, 0.12, 1.5
"""Trees may cost this share of what their drafter has in one pass, but so many tokens' time a request at least, and so many in all
at most; and what their requests have saved. With larger bets a few bad ones emptied the purse, and the rest of an answer went
without drafts; with smaller ones a second row that costs half a token is never tried."""
_DRAFT_STAKE = 0.75
"""Tokens' worth of time that drafting may take on top of what backs a request."""

_RECHECK = 200
"""After so many passes with drafts one is plain, so that what plain decoding costs is known and not only believed."""

_NOISE = 1.15
"""A pass is taken to have cost at most so many times more, or less, than it should: what else a machine does is no loss of drafts.
Where two first passes took three times their time, the purse was empty and a whole answer went without drafts."""

_SHORT_RECORD = 1.25
"""A text that keeps four fifths of its drafter's promises is taken to keep them all: so much is chance."""
_UNUSUAL = 4.0
"""Drafts that take longer than this many usual ones are paid off little by little, as the reading of a prompt is."""
_ADAPTION = 0.3
_FEW_ROWS = 8
_NETWORK_LINE = 8.0
"""Tokens that networks may lose in a row in a request: one draft of a draft model takes the time of three."""
_FIRST = 0.25
"""Tokens' worth of time that a first draft is expected to take."""


@dataclass(slots=True)
class DraftCandidate:
    """What one request's drafter proposes in a step, and what came of it.

    Attributes:
        drafter: its name.
        ledger: the request's accounts.
        scores: float32[n], falling: of each node the probability that its path is accepted.
        seconds: the request's share of the time that drafting took; network_seconds: of the time that networks took besides which
            keep an account of their own; reading: of the time that reading texts took besides.
        verified: nodes that are verified, at first those that no planner may leave out; their promise is ``promised`` tokens.
        accepted: tokens accepted of them; owed: those of them that are owed to such networks.
        of_networks: bool[n], the nodes that are owed to such networks; None if there are none.
    """

    drafter: str
    ledger: Ledger
    scores: npt.NDArray[np.float32]
    seconds: float = 0.0
    verified: int = 0
    promised: float = 0.0
    accepted: int = 0
    reading: float = 0.0
    network_seconds: float = 0.0
    owed: int = 0
    of_networks: npt.NDArray[np.bool_] | None = None

    def accept(self, path: npt.NDArray[np.int64], accepted: int) -> None:
        """The target took the first ``accepted`` nodes of ``path``."""
        self.accepted = accepted
        if self.of_networks is not None:
            self.owed = int(self.of_networks[path[:accepted]].sum())


class Planner:
    """Tree sizes from the cost model, and from how far each drafter's scores have kept their promises.

    Scores are scaled by (tokens accepted) / (tokens that the scores promised), of late: the trees that look worth verifying
    are those whose scores are too high, so that even calibrated scores promise too much where little is accepted. Not thread-safe.
    """

    def __init__(self, costs: CostModel) -> None:
        self.costs = costs
        self._drafted = 0
        self._trust: defaultdict[str, Trust] = defaultdict(Trust)
        self._usual: defaultdict[str, _Usual] = defaultdict(_Usual)
        self._purses: dict[str, Purse] = {}

    def open(self, drafter: str, networks: bool = False) -> Ledger:
        """The accounts of a new request of ``drafter``, whose ``networks`` have one of their own."""
        share = ALLOWANCE / (2 if networks else 1)
        own = self._purses.setdefault(drafter, Purse(share))
        if not networks:
            return Ledger(own.open())
        theirs = self._purses.setdefault(f"{drafter}: networks", Purse(share, _NETWORK_LINE, own))
        return Ledger(own.open(), theirs.open())

    def draft_stake(self, ledger: Ledger) -> float:
        """Tokens' worth of time that a draft for a request may take of a drafter's own passes."""
        return _DRAFT_STAKE + ledger.backing if ledger.may_pass else 0.0

    def row_seconds(self, requests: int, context: float) -> float:
        """What a row costs that is verified beside those of ``requests``, as few as are common."""
        sizes = np.asarray([requests, requests + _FEW_ROWS], np.float64)
        plain, whole = self.costs.times(sizes, requests, context).tolist()
        return float(whole - plain) / _FEW_ROWS

    def choose(self, offers: Sequence[DraftCandidate], requests: int, rows: int, context: float) -> None:
        """Set how many of each offer's nodes to verify, in a pass that has ``rows`` rows without them, prompts' included.

        ``requests`` get a token each whatever is chosen, those without an offer too; they have ``context`` cached tokens in the
        mean. The best nodes of all requests together, as many as give the most expected tokens per second; 0 is a normal answer.
        Prompts must be read in any case: beside them a node must repay its own time at the rate of passes that read none.
        """
        sizes = [len(offer.scores) for offer in offers]
        if not sum(sizes):
            return
        if self._drafted >= _RECHECK:
            self._drafted = 0
            return
        scores = np.concatenate([self._kept(offer) * offer.scores for offer in offers])
        order = np.argsort(
            -scores, kind="stable"
        )  # within a request scores fall, so that its first nodes are chosen first
        promises = np.concatenate([[0.0], np.cumsum(scores[order], dtype=np.float64)])
        nodes = np.arange(len(promises), dtype=np.float64)
        unread = requests + sum(offer.verified for offer in offers)
        alone, beside = (self.costs.times(begin + nodes, requests, context) for begin in (unread, rows))
        wealth = max(offer.ledger.wealth for offer in offers)
        stake = min(_MOST_STAKE, max(_LEAST_STAKE * requests, _STAKED * wealth))
        stake += sum(offer.ledger.balance for offer in offers)
        most = self.costs.time(requests, requests, context) * stake / requests
        allowed = (alone - alone[0] <= most) & (beside - beside[0] <= most)
        rates = np.where(allowed, (requests + promises) / alone, 0.0)
        if rates.max() <= rates[0] * _MARGIN:
            return
        gains = np.where(allowed, promises - rates.max() * (beside - beside[0]), -np.inf)
        best = int(np.argmax(gains))
        owners = np.repeat(np.arange(len(offers)), sizes)
        for offer, count in zip(offers, np.bincount(owners[order[:best]], minlength=len(offers)).tolist(), strict=True):
            offer.verified += count
            offer.promised = float(offer.scores[:count].sum())

    def record(
        self, offers: Sequence[DraftCandidate], requests: int, rows: int, context: float, seconds: float | None
    ) -> None:
        """Learn from a step in which ``requests`` requests decoded: its pass had ``rows`` rows and took ``seconds``.

        ``seconds`` is None for a pass that read prompts too: its nodes cost what they should.
        """
        if seconds is not None:
            self.costs.update(rows, requests, context, seconds)
        nodes = sum(offer.verified for offer in offers)
        self._drafted = self._drafted + 1 if nodes else 0
        sizes = np.asarray([requests, rows - nodes, rows], np.float64)
        plain, without, whole = self.costs.times(sizes, requests, context).tolist()
        spent = whole if seconds is None else min(max(seconds, whole / _NOISE), _NOISE * whole)
        extra = (spent - without) / nodes if nodes else 0.0
        drafting = sum(offer.seconds + offer.network_seconds for offer in offers)
        for offer in offers:
            kept = self._trust[offer.drafter].kept
            offer.ledger.trust.learn(kept * offer.promised, offer.accepted, offer.verified > 0)
            self._trust[offer.drafter].learn(offer.promised, offer.accepted, offer.verified > 0)
            token, few = plain / requests, len(offers) / requests  # one call for few costs about what one for all does
            fewer = sum(each.ledger.with_networks for each in offers) / requests
            usual, unusual = self._usual[offer.drafter].split(few * offer.seconds, _FIRST * token)
            passes, rest = self._usual[f"{offer.drafter}: networks"].split(
                fewer * offer.network_seconds, _FIRST * token
            )
            theirs = 0 if offer.of_networks is None else int(offer.of_networks[: offer.verified].sum())
            offer.ledger.pace(1 + offer.accepted, 1 + (extra * nodes + drafting) / plain)
            offer.ledger.borrow(unusual / token, (offer.reading + rest) / token)
            offer.ledger.book(
                offer.accepted - offer.owed - (usual + extra * (offer.verified - theirs)) / token,
                offer.owed - (passes + extra * theirs) / token,
                (1 - few) * offer.seconds / token,
                (1 - fewer) * offer.network_seconds / token,
            )

    def _kept(self, offer: DraftCandidate) -> float:
        """The share of their promises that scores should keep: of the drafter, and in this text, whose record is short."""
        return self._trust[offer.drafter].kept * min(1.0, _SHORT_RECORD * offer.ledger.trust.kept)


class _Usual:
    """What a drafter's drafts commonly take. A first lookup in a datastore that is not in memory, or a pause of the machine, says
    nothing of the next draft."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def split(self, seconds: float, first: float) -> tuple[float, float]:
        """Of a draft's ``seconds`` those that are not unusual, and the others; ``first``: what is usual while nothing is known."""
        if not seconds:
            return 0.0, 0.0
        usual = min(seconds, _UNUSUAL * self._seconds if self._seconds else first)
        self._seconds += _ADAPTION * (usual - self._seconds) if self._seconds else usual
        return usual, seconds - usual
