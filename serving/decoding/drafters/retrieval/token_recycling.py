"""The token-recycling drafter drafts the target's likeliest tokens of earlier passes (Luo et al. 2024, arXiv 2408.08696).

The paper stores the best next tokens after each token of an answer, and drafts trees from them (section 3). Here candidates are
stored after each of the last one to four tokens, with their log-probabilities. The longest stored ending of the text is used
(csrc/drafting/next_token_table.h).

Measured gain: 6.5 % more tokens per pass in hybrid, greedy (commit 57eea60; see ``docs/design/measured-drafting.md``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from suffolk.datastore import _native
from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.calibration.calibration import Calibration
from suffolk.serving.decoding.drafters.calibration.confidence import Confidence
from suffolk.serving.decoding.drafters.calibration.rescale import knows_noise, learn_tree, rescale
from suffolk.serving.decoding.drafters.drafter_entry import LoadContext, Options
from suffolk.serving.decoding.drafters.registry import source_bits
from suffolk.serving.decoding.drafters.retrieval.limits import Limits
from suffolk.serving.decoding.drafters.retrieval.retrieval_scorer import NO_TOKENS, Ids
from suffolk.serving.decoding.drafters.retrieval.retrieval_source import RetrievalSource
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest, Generated, GeneratedLogits

SOURCE = source_bits("token-recycling")

ENDS = 1 << 18
"""The most endings to store, in 21 MB. Each token of an answer adds about four."""
LOOKED_UP = 64
"""Least nodes to look up. A hybrid also uses this tree's scores of nodes that other sources propose, so a larger tree
helps."""


def load(context: LoadContext, options: Options) -> TokenRecyclingDrafter:
    """Load the drafter for its entry in the registry."""
    return TokenRecyclingDrafter(context.limits, context.calibration)


class TokenRecyclingDrafter(RetrievalSource):
    """Learns from the answers to all its requests. Not thread-safe.

    It stores tokens of answers and their alternatives. What it has stored changes the speed of later answers. So response times
    may reveal parts of one user's answers to another user.
    """

    name = "token-recycling"
    reads_logits = True

    def __init__(self, limits: Limits | None = None, calibration: Calibration | None = None, ends: int = ENDS) -> None:
        """``limits``: the depth of drafts. ``ends``: the most endings to store, 64..2^24, 80 bytes each.

        Raises:
            InvalidArgument: ``ends`` is out of its range.
            ResourceExhausted: out of memory.
        """
        self._max_depth = (limits or Limits()).max_depth
        self._table = _native.NextTokenTable(ends)
        self._confidence: Confidence = (calibration or Calibration()).neural(self.name)
        self._drafts: dict[int, tuple[DraftRequest, DraftTree]] = {}
        self._calls = 0

    def draft(self, requests: Sequence[DraftRequest]) -> list[list[DraftTree]]:
        self._calls += 1
        found = []
        for request in requests:
            tree = self._look_up(request, NO_TOKENS)
            self._drafts[request.request_id] = request, tree
            found.append([rescale(self._confidence, request, tree)])
        return found

    def draft_after(self, requests: Sequence[DraftRequest], paths: Sequence[Sequence[Ids]]) -> list[list[DraftTree]]:
        return [
            [rescale(self._confidence, request, self._look_up(request, path)) for path in each]
            for request, each in zip(requests, paths, strict=True)
        ]

    @torch.inference_mode()
    def learn_logits(self, generated: Sequence[GeneratedLogits]) -> None:
        """See ``LogitsDrafter``. Copies once from the device."""
        width = _native.NextTokenTable.WIDTH
        logits = torch.cat([each.logits for each in generated]).float()
        if logits.shape[1] < width:
            return  # the vocabulary is smaller than a set of candidates
        best = logits.topk(width, dim=-1)
        chances = (best.values - logits.logsumexp(-1, keepdim=True)).clamp_(max=0.0)
        found = torch.cat([best.indices.int(), chances.view(torch.int32)], 1).cpu().numpy()
        ends = np.cumsum([len(each.logits) for each in generated])[:-1]
        for each, rows in zip(generated, np.split(found, ends), strict=True):
            self._table.learn(each.tokens, rows[:, :width], rows[:, width:].view(np.float32))

    def observe(self, generated: Generated) -> None:
        for request_id, tokens in generated.items():
            draft = self._drafts.pop(request_id, None)
            if draft is not None:
                learn_tree(self._confidence, *draft, tokens)

    def release(self, request_id: int) -> None:
        self._drafts.pop(request_id, None)

    def stats(self) -> dict[str, float]:
        return {"calls": self._calls, "failed": 0, "ends": self._table.size}

    def close(self) -> None:
        self._drafts.clear()

    def _look_up(self, request: DraftRequest, path: Ids) -> DraftTree:
        """The tree of tokens that may follow the request's text with ``path`` appended. Scores are not calibrated."""
        settings, order = request.settings, _native.NextTokenTable.ORDER
        ending = np.concatenate([request.tokens[-order:], path])[-order:]
        tokens, parents, scores = self._table.draft(
            ending,
            len(request.tokens) + len(path),
            self._max_depth,
            max(LOOKED_UP, request.max_nodes),
            settings.seed,
            settings.temperature if knows_noise(settings) else 0.0,
        )
        return DraftTree(tokens, parents, scores, np.full(len(tokens), SOURCE, np.uint32))
