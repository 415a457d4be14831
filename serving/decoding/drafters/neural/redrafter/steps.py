"""Runs the ReDrafter head for all requests of a step: beam search, and sampled chains."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from suffolk.serving.decoding.drafters.calibration.confidence import CHAIN_PRIOR, Confidence, learn_draft
from suffolk.serving.decoding.drafters.neural.redrafter.beam_state import SOURCE, BeamState, Floats
from suffolk.serving.decoding.drafters.neural.redrafter.beams import PAD, BeamSearch, pack, take
from suffolk.serving.decoding.drafters.neural.redrafter.config import BeamConfig
from suffolk.serving.decoding.drafters.neural.redrafter.model import RedrafterHead
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.draft_budget import mean_value
from suffolk.serving.decoding.engine.policy.expansion_policy import ExpansionPolicy

_ROUNDS = 5


class Steps:
    """Drafts for several requests at once. The head makes a step only if it is worth its time. Not thread-safe.

    Attributes:
        count: the number of steps of the head so far.
        confidence: the calibrator of beam probabilities.
    """

    def __init__(self, head: RedrafterHead, eos_ids: frozenset[int], config: BeamConfig, costs: CostModel) -> None:
        self.count = 0
        self._head = head
        self._config = config
        self._eos_ids = sorted(eos_ids)
        self._expansion = ExpansionPolicy(costs)
        self.confidence = Confidence()
        self._chains = Confidence()

    @torch.inference_mode()
    def draft(self, drafts: Sequence[BeamState]) -> None:
        """Draft a tree, or a chain if verification requires it, for each of ``drafts``."""
        if not drafts:
            return
        searched = [draft for draft in drafts if not draft.needs_chain]
        sampled = [draft for draft in drafts if draft.needs_chain]
        if searched:
            self._search(searched)
        if sampled:
            self._sample_chains(sampled)

    def learn(self, draft: BeamState, tokens: npt.NDArray[np.int32]) -> None:
        """Learn from the ``tokens`` that the target generated after the last draft."""
        draft_probs = np.full(len(draft.tree), CHAIN_PRIOR) if draft.needs_chain else draft.draft_probs
        learners = self._chains if draft.needs_chain else self.confidence
        for taken in learn_draft(learners, draft.sampled, draft.tree, draft_probs, tokens):
            self._expansion.learn(taken)

    def _search(self, drafts: Sequence[BeamState]) -> None:
        features, states, tokens = self._begin(drafts)
        features, states, tokens = features[:, None], states[:, None], tokens[:, None]
        search = BeamSearch(self._tensor([draft.room for draft in drafts]), self._config.width, self._ends(drafts))
        left, going = self._seconds_left(drafts), True
        while going:
            begin = time.perf_counter()
            logits, states = self._head(features.expand(-1, tokens.shape[1], -1), states, tokens)
            best = self._scores(drafts, search, logits).log_softmax(-1).topk(min(self._config.width, logits.shape[-1]))
            origins = search.grow(best.values.double(), best.indices)
            states, tokens = take(states, origins), search.tokens[..., -1].clamp(min=0)
            probs, live = search.log_probs.exp().cpu().numpy(), search.open.cpu().numpy()
            chances = self._chances(drafts, probs)
            self._learn_cost(logits.shape[0] * logits.shape[1], begin)
            left -= self._seconds(live.size)
            value = float(np.nansum(chances.prod(2)[live]))  # NaN in one request must not stop the others
            going = bool(live.any()) and left >= 0 and self._pays(drafts, value, live.size)
        tokens, log_probs = search.explored()
        probs = log_probs.exp().cpu().numpy()
        trees = pack(tokens.cpu(), torch.from_numpy(self._chances(drafts, probs)), SOURCE)
        for draft, packed, each in zip(drafts, trees, probs, strict=True):
            draft.take(packed, each.ravel())

    def _sample_chains(self, drafts: Sequence[BeamState]) -> None:
        features, states, tokens = self._begin(drafts)
        going = list(drafts)
        chances, left = self._chain_chances(), self._seconds_left(drafts)
        while going:
            begin = time.perf_counter()
            logits, states = self._head(features, states, tokens)
            sampled = [draft.sample(row[None]) for draft, row in zip(going, logits, strict=True)]
            self._learn_cost(len(going), begin)
            kept = [
                row for row, token in enumerate(sampled) if token is not None and not self._ended(going[row], token)
            ]
            going = [going[row] for row in kept]
            value = sum(float(chances[: len(draft.chain)].prod()) for draft in going)
            left -= self._seconds(len(going)) if going else 0.0
            if not going or left < 0 or not self._pays(going, value, len(going)):
                break
            features, states, tokens = features[kept], states[kept], self._tensor([draft.chain[-1] for draft in going])
        for draft in drafts:
            draft.finish_chain(chances)

    def _begin(self, drafts: Sequence[BeamState]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The hidden state, initial state and first input token of each request. The target has not read that token yet."""
        last = self._tensor([draft.request.tokens[-2:] for draft in drafts])
        return torch.stack([draft.feature for draft in drafts]), self._head.initial_state(last[:, 0]), last[:, 1]

    def _scores(self, drafts: Sequence[BeamState], search: BeamSearch, logits: torch.Tensor) -> torch.Tensor:
        """float32[requests, beams, vocab], the noisy scores of ``logits`` under each request's sampling settings."""
        if all(draft.is_plain for draft in drafts):
            return logits.float()
        paths, live = search.tokens.cpu().numpy(), search.open.cpu().numpy()
        return torch.stack([draft.scores(*each) for draft, *each in zip(drafts, logits, paths, live, strict=True)])

    def _chances(self, drafts: Sequence[BeamState], probs: Floats) -> Floats:
        """float64[requests, beams, length], the calibrated ``probs`` of the head."""
        depths = np.arange(1, probs.shape[2] + 1)
        chances = [
            self.confidence.chances(each, depths, draft.sampled) for draft, each in zip(drafts, probs, strict=True)
        ]
        return np.minimum(np.stack(chances), 1.0)

    def _chain_chances(self) -> Floats:
        """float64[length], the conditional acceptance probability of a chain's token at each depth."""
        prior = np.full(self._config.length, CHAIN_PRIOR)
        return np.minimum(self._chains.chances(prior, np.arange(1, len(prior) + 1), True), 1.0)

    def _ended(self, draft: BeamState, token: int) -> bool:
        return len(draft.chain) >= draft.room or (token in self._eos_ids and not draft.request.settings.ignore_eos)

    def _ends(self, drafts: Sequence[BeamState]) -> torch.Tensor:
        none = [PAD] * len(self._eos_ids)
        rows = [none if draft.request.settings.ignore_eos else self._eos_ids for draft in drafts]
        return self._tensor(rows)

    def _seconds_left(self, drafts: Sequence[BeamState]) -> float:
        """The seconds left after the first step, which is always made."""
        return sum(draft.request.budget.model_seconds for draft in drafts) - self._seconds(len(drafts))

    def _seconds(self, rows: int) -> float:
        """The expected seconds of a step of ``rows`` rows. A recurrent head has no cache, so there are no cached tokens."""
        return self._expansion.costs.time(rows, rows, 0.0)

    def _pays(self, drafts: Sequence[BeamState], value: float, rows: int) -> bool:
        return self._expansion.pays(value, mean_value(draft.request.budget for draft in drafts), self._seconds(rows))

    def _learn_cost(self, rows: int, begin: float) -> None:
        self.count += 1
        self._expansion.costs.update(rows, rows, 0.0, time.perf_counter() - begin)

    def _tensor(self, values: Sequence[object]) -> torch.Tensor:
        device = next(self._head.parameters()).device
        return torch.from_numpy(np.asarray(values, np.int64)).to(device)


@torch.inference_mode()
def measure_steps(head: RedrafterHead, rows: int) -> CostModel:
    """Measure steps of ``head`` over 1, 2, 4 ... ``rows`` rows, each as the fastest of a few. Takes milliseconds for most heads."""
    sizes = sorted({min(2**power, rows) for power in range(rows.bit_length() + 1)})
    weight = next(head.parameters())
    seconds = []
    for size in sizes:
        tokens = torch.zeros(size, dtype=torch.int64, device=weight.device)
        states = head.initial_state(tokens)
        times = []
        for _ in range(_ROUNDS):
            begin = time.perf_counter()
            logits, _ = head(states, states, tokens)
            logits.log_softmax(-1).amax(-1).cpu()
            times.append(time.perf_counter() - begin)
        seconds.append(min(times))
    return CostModel(sizes, seconds)
