"""One request as the recurrent head sees it: the target's last feature, and the draft of this step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from suffolk.datastore.draft_tree import DraftTree, Source
from suffolk.serving.drafters.neural.coupled_sampling import laws, own_sampler, scores
from suffolk.serving.drafters.neural.redrafter.beams import Packed
from suffolk.serving.engine.loop.drafter import DraftRequest, Proposal, SampledChain
from suffolk.serving.engine.sampling.verification.rejection import inverse_cdf_sample

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Read:
    """What the target has read of a text: so many ``tokens``, and float[hidden], the ``feature`` of the last of them."""

    tokens: int
    feature: torch.Tensor


class Text:
    """A request from its first draft on. Not thread-safe.

    Attributes:
        request: as of the last ``begin``; ``feature``: float[hidden], of its last token but one.
        room: tokens that a draft may have, by the request's bounds and the beams'.
        sampled: whether the target draws at a temperature above 0.
        is_chain: whether the draft is drawn at random: where that is how it is verified.
        proposal: the draft since the last ``begin``.
        tree: all nodes that were looked at; ``own``: float64[nodes], the head's own probability of each, empty for a chain.
        chain: the tokens drawn so far.
    """

    def __init__(self, request: DraftRequest, vocab_size: int, device: torch.device) -> None:
        """``vocab_size``: of the ids that may be drafted; ``device``: of the head's logits."""
        settings = request.settings
        self.sampled = settings.temperature > 0
        self.is_chain = self.sampled and settings.verification == "rejection"
        self._sampler = own_sampler(settings, vocab_size, device)
        self._uniforms = torch.Generator().manual_seed(settings.seed)
        self.forget()

    def begin(self, request: DraftRequest, feature: torch.Tensor, length: int) -> None:
        """A new step, in which beams have up to ``length`` tokens."""
        self.request, self.feature = request, feature
        self.room = max(0, min(length, request.max_nodes, request.room))
        self.forget()

    def forget(self) -> None:
        """Drop the draft of the step before."""
        self.proposal: Proposal = DraftTree.empty()
        self.tree, self.own = DraftTree.empty(), np.empty(0, np.float64)
        self.chain: list[int] = []
        self._laws: list[torch.Tensor] = []

    @property
    def is_plain(self) -> bool:
        """Whether the target draws the argmax of its logits."""
        return self._sampler.is_plain_greedy

    def scores(self, logits: torch.Tensor, paths: npt.NDArray[np.int64], live: npt.NDArray[np.bool_]) -> torch.Tensor:
        """float32[beams, vocab]: what the draw makes of ``logits`` behind ``paths`` int64[beams, t] if ``live``, else 0."""
        found = torch.zeros_like(logits, dtype=torch.float32)
        rows = np.flatnonzero(live)
        if len(rows):
            chosen = torch.from_numpy(rows).to(logits.device)
            found[chosen] = scores(self._sampler, self.request, list(paths[rows]), logits[chosen])
        return found

    def take(self, packed: Packed, own: Floats) -> None:
        """Propose the best nodes of a tree; ``own`` float64[beams * length]: the head's own probabilities, by place."""
        self.tree, self.own = packed.tree, own[packed.places]
        self.proposal = packed.tree.head(self.request.most_named)

    def draw(self, logits: torch.Tensor) -> int | None:
        """Draw the chain's next token from the law that ``logits`` float[1, vocab] have here; None where no token is allowed.

        The uniform numbers are of a stream of the request's own, and each is used once, so that no draw of the target's, no coin,
        and no earlier draft tells anything of them.
        """
        law = laws(self._sampler, self.request, [np.array(self.chain, np.int64)], logits)[0]
        uniform = torch.rand((), dtype=torch.float64, generator=self._uniforms).to(law.device)
        if bool(law.sum() == 0):
            return None
        token = int(inverse_cdf_sample(law, uniform))
        self.chain.append(token)
        self._laws.append(law)
        return token

    def finish_chain(self, chances: Floats) -> None:
        """Propose the chain; ``chances`` float64[n]: that the token at each place is accepted if the one before is."""
        size = len(self.chain)
        if not size:
            return
        self.tree = DraftTree(
            np.array(self.chain, np.int32),
            np.arange(-1, size - 1, dtype=np.int32),
            np.cumprod(chances[:size]).astype(np.float32),
            np.full(size, Source.REDRAFTER, np.uint8),
        )
        self.proposal = SampledChain(self.tree, torch.stack(self._laws))
