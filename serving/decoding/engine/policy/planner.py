"""The planner chooses how many nodes of each draft tree to verify, and records the costs and gains of drafting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.draft_budget import DraftBudget, DraftCandidate
from suffolk.serving.decoding.engine.policy.acceptance_model import AcceptanceModel
from suffolk.serving.decoding.engine.policy.constants import (
    CAUTION,
    FEW_ROWS,
    GIFT,
    HOPE,
    LEAST_BOOKED,
    MARGIN,
    MEMORY,
    PRIOR_WEIGHT,
    RECHECK,
    REFILL,
)
from suffolk.serving.decoding.engine.policy.speculation_budget import SpeculationBudget


@dataclass(slots=True)
class _Running:
    """A running request: its budgets, and the number and time of its recent tokens. A time of 1 is a "plain token": the time of one
    token in plain decoding."""

    drafter: str
    budget: SpeculationBudget
    models: SpeculationBudget | None
    uses_models: bool = False
    tokens: float = PRIOR_WEIGHT
    time: float = PRIOR_WEIGHT

    @property
    def budgets(self) -> list[SpeculationBudget]:
        return [self.budget] if self.models is None else [self.budget, self.models]


class Planner:
    """Sizes trees by the cost model, the acceptance model, and the ``budgets`` of the drafters. Not thread-safe."""

    def __init__(self, costs: CostModel) -> None:
        """``costs``: the costs of the target's passes; each pass corrects them."""
        self.costs = costs
        self._acceptance = AcceptanceModel()
        self.budgets: dict[str, SpeculationBudget] = {}
        self._requests: dict[int, _Running] = {}
        self._passes_with_drafts = 0
        self._seconds: dict[tuple[int, float], tuple[float, float]] = {}  # kept results of ``_plain_step``

    def open(self, request_id: int, drafter: str, mixes: bool = False) -> None:
        """Start a request of ``drafter``.

        ``mixes``: the drafter can skip its neural models. Then the models have one budget, and retrieval has another.
        """
        share = REFILL / 2 if mixes else REFILL
        budget = self.budgets.setdefault(drafter, SpeculationBudget(share))
        models = self.budgets.setdefault(f"{drafter}: models", SpeculationBudget(share)) if mixes else None
        self._requests[request_id] = running = _Running(drafter, budget, models)
        for each in running.budgets:
            each.requests += 1

    def close(self, request_id: int) -> None:
        """End a request."""
        for each in self._requests.pop(request_id).budgets:
            each.requests -= 1
        self._acceptance.release(request_id)

    def may_draft(self, request_id: int) -> bool:
        """Whether to draft for a request in this step. Call it once per step, because it refills the budgets."""
        running = self._requests[request_id]
        for each in running.budgets:
            each.refill()
        running.uses_models = running.models is not None and running.models.allows
        return running.budget.allows or running.uses_models

    def is_paused(self, request_id: int) -> bool:
        """Whether drafting is paused for a request because its budgets are empty."""
        return not any(each.allows for each in self._requests[request_id].budgets)

    def draft_budget(self, request_id: int, requests: int, context: float) -> DraftBudget:
        """The limits of a draft in a step of ``requests`` requests with a mean of ``context`` cached tokens."""
        running = self._requests[request_id]
        key = requests, context
        token, row = self._seconds.get(key) or self._seconds.setdefault(key, self._plain_step(requests, context))
        stake = 0.0 if running.models and not running.uses_models else (running.models or running.budget).draft_stake()
        return DraftBudget(token, row, token * stake, max(1.0, running.tokens / running.time))

    def size_trees(self, candidates: Sequence[DraftCandidate], requests: int, rows: int, context: float) -> None:
        """Set how many nodes of each candidate to verify. The caller then cuts the trees, as ``StepBatch._entry`` does.

        Chooses the best nodes of all requests together. Their number is the one that gives the most expected tokens per second,
        and may be 0. If the pass also reads prompts, a further second must give as many tokens as in the best pass without prompts.

        Args:
            candidates: the drafts. The method sets their ``verified``.
            requests: requests that decode in the pass; each gets one token without drafts.
            rows: rows of the pass without these nodes, including prompt rows.
            context: mean cached tokens of the requests.
        """
        sizes = [len(each.scores) for each in candidates]
        if not sum(sizes):
            return
        if self._passes_with_drafts >= RECHECK:
            self._passes_with_drafts = 0
            return
        scores = np.concatenate([self._scale(each) * each.scores for each in candidates])
        order = np.argsort(-scores, kind="stable")  # stable: a request's scores fall, so its nodes keep their order
        expected = np.concatenate([[0.0], np.cumsum(scores[order], dtype=np.float64)])
        nodes = np.arange(len(expected), dtype=np.float64)
        unread = requests + sum(each.verified for each in candidates)
        spent = sum(each.seconds + each.model_seconds for each in candidates)
        alone = self.costs.times(unread + nodes, requests, context, -HOPE)
        beside = alone if rows == unread else self.costs.times(rows + nodes, requests, context, reads=True)
        costs = self.costs.times(rows + nodes, requests, context, reads=rows > unread)
        losses = (costs - costs[0]) / self.costs.time(requests, requests, context) * requests
        allowed = losses <= max(self._paying(each).stake(requests) for each in candidates)
        rates = np.where(allowed, (requests + expected) / (spent + alone), 0.0)
        if rates.max() <= rates[0] * MARGIN:
            return
        gains = np.where(allowed, expected - rates.max() * (beside - beside[0]), -np.inf)
        owners = np.repeat(np.arange(len(candidates)), sizes)[order[: int(np.argmax(gains))]]
        for each, count in zip(candidates, np.bincount(owners, minlength=len(candidates)).tolist(), strict=True):
            each.verified += count

    def record(
        self, candidates: Sequence[DraftCandidate], requests: int, rows: int, context: float, seconds: float | None
    ) -> None:
        """Learn from a step in which ``requests`` requests decoded in a pass of ``rows`` rows and ``seconds``.

        ``seconds`` is None if the pass also read prompts; its nodes then count at their expected cost.
        """
        self._seconds.clear()
        if seconds is not None:
            self.costs.update(rows, requests, context, seconds)
        if paused := [budget for budget in self.budgets.values() if not budget.allows]:
            token, row = self._plain_step(requests, context)
            for budget in paused:  # set in each step, because rows look slow while the machine is busy
                budget.trial = FEW_ROWS * row / token
        nodes = sum(each.verified for each in candidates)
        self._passes_with_drafts = self._passes_with_drafts + 1 if nodes else 0
        if not candidates:
            return
        sizes = np.asarray([rows - nodes, rows], np.float64)
        before, measured = self.costs.times(sizes, requests, context, reads=True).tolist()
        without, whole = self.costs.times(sizes, requests, context, CAUTION, seconds is None).tolist()
        token = self.costs.time(requests, requests, context) / requests
        row = max(whole - without, LEAST_BOOKED * (measured - before)) / nodes / token if nodes else 0.0
        for each in candidates:
            self._book(each, token, row)
            running = self._requests[each.request_id]
            taken = 1 + row * each.verified + (each.seconds + each.model_seconds) / token
            running.tokens = MEMORY * running.tokens + 1 + each.accepted
            running.time = MEMORY * running.time + taken

    def _plain_step(self, requests: int, context: float) -> tuple[float, float]:
        """Seconds of a token, and of one more row, in a step without drafts."""
        sizes = np.asarray([requests, requests + FEW_ROWS], np.float64)
        plain, whole = self.costs.times(sizes, requests, context).tolist()
        return plain / requests, (whole - plain) / FEW_ROWS

    def _book(self, candidate: DraftCandidate, token: float, row: float) -> None:
        """Record the cost and gain of one draft. ``token``: seconds of a plain token; ``row``: time of a node, in plain tokens."""
        running, paying = self._requests[candidate.request_id], self._paying(candidate)
        verified = candidate.verified
        expected = float(candidate.scores[:verified].sum())
        self._acceptance.learn(running.drafter, candidate.request_id, expected, candidate.accepted, verified > 0)
        of_models = candidate.count_of_models(slice(verified))
        earned = candidate.accepted - candidate.accepted_of_models - row * (verified - of_models)
        models = running.models or paying
        if models is not paying:
            gift = GIFT * max(0.0, earned)
            earned -= gift
            models.add(gift)
        paying.spend(candidate.seconds, token)
        paying.add(earned)
        models.spend(candidate.model_seconds, token)
        models.add(candidate.accepted_of_models - row * of_models)
        models.defer(candidate.prefill_seconds / token)

    def _paying(self, candidate: DraftCandidate) -> SpeculationBudget:
        """The budget that pays for retrieval: retrieval's own budget, or while this is empty, the budget of the models."""
        running = self._requests[candidate.request_id]
        return running.budget if running.budget.allows or running.models is None else running.models

    def _scale(self, candidate: DraftCandidate) -> float:
        return self._acceptance.scale(self._requests[candidate.request_id].drafter, candidate.request_id)
