"""A draft model of a simulation: a chain whose tokens are right with a given probability, drafted pass by pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from research.simulated_device.device import Device
from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.registry import source_bits
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest, Generated
from suffolk.serving.decoding.engine.policy.expansion_policy import ExpansionPolicy
from suffolk.serving.decoding.engine.policy.prefill_policy import PrefillPolicy

_DEPTH = 8
Ids = npt.NDArray[np.int32]


class SimulatedDraftModel:
    """Drafts the recorded text with errors, by the policies of real draft models. Not thread-safe.

    A text is read before its first draft. Each further token takes a pass.

    Attributes:
        prior_gain: the same as a real draft model's.
    """

    name = "draft-model"
    prior_gain = 3.0

    def __init__(
        self,
        texts: Callable[[int], Ids],
        right: float,
        costs: CostModel,
        device: Device,
        vocab_size: int,
        seed: int = 0,
    ) -> None:
        """``texts``: the text of a request by its number. ``right``: share of right tokens. ``costs``: of the model's passes."""
        self._texts, self._right, self._costs = texts, right, costs
        self._device, self._vocab_size, self._seed = device, vocab_size, seed
        self._expansion, self._prefill = ExpansionPolicy(costs.copy(), 0.8), PrefillPolicy()
        self._read: dict[int, int] = {}  # tokens read, by request
        self._drafts: dict[int, Ids] = {}
        self._seconds = {"prefill_seconds": 0.0, "model_seconds": 0.0}

    def propose(self, requests: Sequence[DraftRequest]) -> list[DraftTree]:
        return [self._draft(each) if self._reads(each) else DraftTree.empty() for each in requests]

    def observe(self, generated: Generated) -> None:
        for request_id, tokens in generated.items():
            for drafted, token in zip(self._drafts.pop(request_id, ()), tokens, strict=False):
                self._expansion.learn(bool(drafted == token))
                if drafted != token:
                    break

    def release(self, request_id: int) -> None:
        self._drafts.pop(request_id, None)
        self._prefill.release(request_id, self._read.pop(request_id, 0))

    def stats(self) -> dict[str, float]:
        return {"calls": 0, "failed": 0} | self._seconds

    def close(self) -> None:
        pass

    def _reads(self, request: DraftRequest) -> bool:
        """Whether the text is read, now or before (``PrefillPolicy``)."""
        size, budget = len(request.tokens), request.budget
        unread = size - self._read.get(request.request_id, 0)
        share = self._expansion.saving(_DEPTH, budget, 1, size)
        seconds = self._costs.time(unread, 1, size / 2)
        if not self._prefill.reads(request.request_id, share, seconds, request.room + 1, budget):
            return False
        if request.request_id not in self._read:
            self._work(seconds, "prefill_seconds")
        self._read[request.request_id] = size
        return True

    def _draft(self, request: DraftRequest) -> DraftTree:
        size, budget = len(request.tokens), request.budget
        ahead = self._texts(request.request_id)[size : size + min(_DEPTH, request.max_nodes)]
        seconds = self._costs.time(1, 1, size)
        random = np.random.default_rng([self._seed, request.request_id, size])
        tokens: list[int] = []
        while len(tokens) < len(ahead) and (len(tokens) + 1) * seconds <= budget.model_seconds:
            if not self._expansion.pays(0.8 ** len(tokens), budget.value_seconds, seconds):
                break
            self._work(seconds, "model_seconds")
            shift = 0 if random.random() < self._right else 17
            tokens.append((int(ahead[len(tokens)]) + shift) % self._vocab_size)
        chain = np.array(tokens, np.int32)
        self._drafts[request.request_id] = chain
        scores = (0.8 ** np.arange(1, len(chain) + 1)).astype(np.float32)
        source = np.full(len(chain), source_bits(self.name), np.uint32)
        return DraftTree(chain, np.arange(-1, len(chain) - 1, dtype=np.int32), scores, source)

    def _work(self, seconds: float, counter: str) -> None:
        self._device.work(seconds)
        self._seconds[counter] += seconds
