"""Steps of a recurrent head over all requests: beams that are searched, and chains that are drawn."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from suffolk.datastore.draft_tree import Source
from suffolk.serving.drafters.calibration.by_class import COMMON, ByClass
from suffolk.serving.drafters.calibration.confidence import CHAIN_PRIOR, Confidence
from suffolk.serving.drafters.calibration.evidence import evidence, learn_evidence
from suffolk.serving.drafters.neural.pay import Pay
from suffolk.serving.drafters.neural.redrafter.beams import PAD, BeamSearch, pack, take
from suffolk.serving.drafters.neural.redrafter.config import BeamConfig
from suffolk.serving.drafters.neural.redrafter.draft_state import Floats, Text
from suffolk.serving.drafters.neural.redrafter.model import RedrafterHead
from suffolk.serving.engine.loop.drafter import mean_worth
from suffolk.serving.engine.policy.cost_model import CostModel

_ROUNDS = 5


class Steps:
    """Drafts for texts whose features have come. Each step must promise more tokens' worth of time than it takes. Not thread-safe.

    Attributes:
        count: steps of the head so far.
        confidence: what the probabilities of beams have been worth.
    """

    def __init__(self, head: RedrafterHead, eos_ids: frozenset[int], config: BeamConfig, costs: CostModel) -> None:
        self.count = 0
        self._head = head
        self._config = config
        self._eos_ids = sorted(eos_ids)
        self._pay = Pay(costs)
        self.confidence: ByClass[Confidence] = ByClass(Confidence)
        self._chains: ByClass[Confidence] = ByClass(Confidence)

    @torch.inference_mode()
    def draft(self, texts: Sequence[Text]) -> None:
        """Draft behind each of ``texts`` if that pays: a tree, or a chain where that is how it is verified."""
        if not texts:
            return
        if not self._pay.begins(mean_worth(text.request for text in texts), len(texts), _contexts(len(texts))):
            return
        searched = [text for text in texts if not text.is_chain]
        drawn = [text for text in texts if text.is_chain]
        if searched:
            self._search(searched)
        if drawn:
            self._draw(drawn)

    def learn(self, text: Text, tokens: npt.NDArray[np.int32]) -> None:
        """The target's ``tokens`` followed the last draft: what of it was right."""
        own = np.full(len(text.tree), CHAIN_PRIOR) if text.is_chain else text.own
        found = list(evidence(text.tree.tokens, text.tree.parents, own, tokens))
        for _, _, taken in found:
            self._pay.learn(bool(taken[0]))
        learners = self._chains if text.is_chain else self.confidence
        learn_evidence(learners, text.request.request_class, text.sampled, found)

    def _search(self, texts: Sequence[Text]) -> None:
        features, states, tokens = self._begin(texts)
        features, states, tokens = features[:, None], states[:, None], tokens[:, None]
        search = BeamSearch(self._tensor([text.room for text in texts]), self._config.width, self._ends(texts))
        left, going = self._seconds_left(texts), True
        while going:
            begin = time.perf_counter()
            logits, states = self._head(features.expand(-1, tokens.shape[1], -1), states, tokens)
            best = self._scores(texts, search, logits).log_softmax(-1).topk(min(self._config.width, logits.shape[-1]))
            origins = search.grow(best.values.double(), best.indices)
            states, tokens = take(states, origins), search.tokens[..., -1].clamp(min=0)
            own, live = search.log_probs.exp().cpu().numpy(), search.open.cpu().numpy()
            chances = self._chances(texts, own)
            self._learn_cost(logits.shape[0] * logits.shape[1], begin)
            left -= self._seconds(live.size)
            value = float(np.nansum(chances.prod(2)[live]))  # what is no number says nothing of other texts
            going = bool(live.any()) and left >= 0 and self._pays(texts, value, live.size)
        tokens, log_probs = search.explored()
        own = log_probs.exp().cpu().numpy()
        trees = pack(tokens.cpu(), torch.from_numpy(self._chances(texts, own)), Source.REDRAFTER)
        for text, packed, each in zip(texts, trees, own, strict=True):
            text.take(packed, each.ravel())

    def _draw(self, texts: Sequence[Text]) -> None:
        features, states, tokens = self._begin(texts)
        going = list(texts)
        chances, left = self._chain_chances(), self._seconds_left(texts)
        while going:
            begin = time.perf_counter()
            logits, states = self._head(features, states, tokens)
            drawn = [text.draw(row[None]) for text, row in zip(going, logits, strict=True)]
            self._learn_cost(len(going), begin)
            kept = [row for row, token in enumerate(drawn) if token is not None and not self._ended(going[row], token)]
            going = [going[row] for row in kept]
            value = sum(float(chances[: len(text.chain)].prod()) for text in going)
            left -= self._seconds(len(going)) if going else 0.0
            if not going or left < 0 or not self._pays(going, value, len(going)):
                break
            features, states, tokens = features[kept], states[kept], self._tensor([text.chain[-1] for text in going])
        for text in texts:
            text.finish_chain(chances)

    def _begin(self, texts: Sequence[Text]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """For each text its feature, the head's first state, and the first token to feed: the last, not read by the target."""
        last = self._tensor([text.request.tokens[-2:] for text in texts])
        return torch.stack([text.feature for text in texts]), self._head.initial_state(last[:, 0]), last[:, 1]

    def _scores(self, texts: Sequence[Text], search: BeamSearch, logits: torch.Tensor) -> torch.Tensor:
        """float32[requests, beams, vocab], what each request's own draw makes of ``logits``."""
        if all(text.is_plain for text in texts):
            return logits.float()
        paths, live = search.tokens.cpu().numpy(), search.open.cpu().numpy()
        return torch.stack([text.scores(*each) for text, *each in zip(texts, logits, paths, live, strict=True)])

    def _chances(self, texts: Sequence[Text], own: Floats) -> Floats:
        """float64 of the shape of ``own`` [requests, beams, length], the head's own probabilities."""
        depths = np.arange(1, own.shape[2] + 1)
        chances = [
            self.confidence[text.request.request_class].chances(each, depths, text.sampled)
            for text, each in zip(texts, own, strict=True)
        ]
        return np.minimum(np.stack(chances), 1.0)

    def _chain_chances(self) -> Floats:
        """float64[length], by depth alone."""
        own = np.full(self._config.length, CHAIN_PRIOR)
        return np.minimum(self._chains[COMMON].chances(own, np.arange(1, len(own) + 1), True), 1.0)

    def _ended(self, text: Text, token: int) -> bool:
        return len(text.chain) >= text.room or (token in self._eos_ids and not text.request.settings.ignore_eos)

    def _ends(self, texts: Sequence[Text]) -> torch.Tensor:
        none = [PAD] * len(self._eos_ids)
        rows = [none if text.request.settings.ignore_eos else self._eos_ids for text in texts]
        return self._tensor(rows)

    def _seconds_left(self, texts: Sequence[Text]) -> float:
        """What drafts for ``texts`` may take behind the first step, which is made in any case."""
        return sum(text.request.most_seconds for text in texts) - self._seconds(len(texts))

    def _seconds(self, rows: int) -> float:
        """What a step of ``rows`` rows should take."""
        return self._pay.costs.time(rows, rows, 0.0)

    def _pays(self, texts: Sequence[Text], value: float, rows: int) -> bool:
        return self._pay.pays(value, mean_worth(text.request for text in texts), rows, _contexts(len(texts)))

    def _learn_cost(self, rows: int, begin: float) -> None:
        self.count += 1
        self._pay.learn_cost(rows, _contexts(rows), time.perf_counter() - begin)

    def _tensor(self, values: Sequence[object]) -> torch.Tensor:
        device = next(self._head.parameters()).device
        return torch.from_numpy(np.asarray(values, np.int64)).to(device)


@torch.inference_mode()
def measure_steps(head: RedrafterHead, rows: int) -> CostModel:
    """What a step of ``head`` over 1, 2, 4 ... ``rows`` rows takes: the fastest of a few; milliseconds for most heads."""
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


def _contexts(requests: int) -> npt.NDArray[np.int64]:
    """Cached tokens, of which a head has none."""
    return np.zeros(requests, np.int64)
