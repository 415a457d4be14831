"""The state of one request in the ReDrafter drafter: the target's last hidden state, and the draft of this step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.neural.coupled_sampling import (
    distributions,
    drafter_sampler,
    needs_distributions,
    noisy_scores,
)
from suffolk.serving.decoding.drafters.neural.redrafter.beams import Packed
from suffolk.serving.decoding.drafters.registry import source_bits
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest, Proposal, SampledChain
from suffolk.serving.decoding.engine.sampling.verification.rejection import inverse_cdf_sample

Floats = npt.NDArray[np.float64]

SOURCE = source_bits("redrafter")


@dataclass(frozen=True, slots=True)
class ReadPrefix:
    """The number of ``tokens`` that the target has read, and the hidden state of the last one: ``feature``, float[hidden]."""

    tokens: int
    feature: torch.Tensor


class BeamState:
    """The state of a request, from its first draft on. Not thread-safe.

    Attributes:
        request: the request of the last ``begin``.
        feature: float[hidden], the target's hidden state of the last token but one.
        room: the most tokens of a draft, within the bounds of the request and of the beams.
        sampled: whether the request samples at a temperature above 0.
        is_plain: whether the request takes the argmax of unprocessed logits.
        needs_chain: whether the draft must be a chain with its distributions.
        proposal: the draft since the last ``begin``.
        tree: all explored nodes.
        draft_probs: float64[nodes], the head's probability of each node of ``tree``; empty for a chain.
        chain: the tokens sampled so far.
    """

    def __init__(self, request: DraftRequest, vocab_size: int, device: torch.device) -> None:
        """``vocab_size``: the number of ids that may be drafted. ``device``: the device of the head's logits."""
        self.sampled = request.settings.temperature > 0
        self.needs_chain = needs_distributions(request.settings)
        self._sampler = drafter_sampler(request.settings, vocab_size, device)
        self.is_plain = self._sampler.is_plain_greedy
        self._uniforms = torch.Generator().manual_seed(request.settings.seed)
        self.forget()

    def begin(self, request: DraftRequest, feature: torch.Tensor, length: int) -> None:
        """Begin a step with beams of up to ``length`` tokens."""
        self.request, self.feature = request, feature
        self.room = max(0, min(length, request.max_nodes, request.room))
        self.forget()

    def forget(self) -> None:
        """Drop the draft of the last step."""
        self.proposal: Proposal = DraftTree.empty()
        self.tree, self.draft_probs = DraftTree.empty(), np.empty(0, np.float64)
        self.chain: list[int] = []
        self._distributions: list[torch.Tensor] = []

    def scores(self, logits: torch.Tensor, paths: npt.NDArray[np.int64], live: npt.NDArray[np.bool_]) -> torch.Tensor:
        """float32[beams, vocab], the noisy scores of ``logits`` after ``paths`` int64[beams, t]; 0 except for ``live`` beams."""
        found = torch.zeros_like(logits, dtype=torch.float32)
        rows = np.flatnonzero(live)
        if len(rows):
            chosen = torch.from_numpy(rows).to(logits.device)
            found[chosen] = noisy_scores(self._sampler, self.request, list(paths[rows]), logits[chosen])
        return found

    def take(self, packed: Packed, draft_probs: Floats) -> None:
        """Propose the best nodes of ``packed``. ``draft_probs``: float64[beams * length], the head's probabilities by place."""
        self.tree, self.draft_probs = packed.tree, draft_probs[packed.places]
        self.proposal = packed.tree.head(self.request.max_nodes)

    def sample(self, logits: torch.Tensor) -> int | None:
        """Sample the chain's next token from ``logits`` float[1, vocab]. Returns None if no token is allowed.

        Each request has its own random stream for chains, and uses each number once. So drafts are independent of the target's
        samples and of each other.
        """
        row = distributions(self._sampler, self.request, [np.array(self.chain, np.int64)], logits)[0]
        uniform = torch.rand((), dtype=torch.float64, generator=self._uniforms).to(row.device)
        if bool(row.sum() == 0):
            return None
        token = int(inverse_cdf_sample(row, uniform))
        self.chain.append(token)
        self._distributions.append(row)
        return token

    def finish_chain(self, chances: Floats) -> None:
        """Propose the chain. ``chances``: float64[n], the conditional acceptance probability at each depth."""
        size = len(self.chain)
        if not size:
            return
        self.tree = DraftTree(
            np.array(self.chain, np.int32),
            np.arange(-1, size - 1, dtype=np.int32),
            np.cumprod(chances[:size]).astype(np.float32),
            np.full(size, SOURCE, np.uint32),
        )
        self.proposal = SampledChain(self.tree, torch.stack(self._distributions))
