"""The parallel-samples drafter drafts from other answers to the same prompt, while they are generated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from suffolk.datastore import _native
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.request_texts import ParallelTexts
from suffolk.serving.decoding.drafters.calibration.calibration import Calibration, Part
from suffolk.serving.decoding.drafters.calibration.calibrator import Prior
from suffolk.serving.decoding.drafters.drafter_entry import LoadContext, Options
from suffolk.serving.decoding.drafters.registry import source_bits
from suffolk.serving.decoding.drafters.retrieval.limits import Limits
from suffolk.serving.decoding.drafters.retrieval.retrieval_scorer import NO_TOKENS, Ids, nodes_wanted
from suffolk.serving.decoding.drafters.retrieval.retrieval_source import TextSource
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest

SOURCE = source_bits("parallel-samples")
PRIOR = Prior(constant=-1.85, match=0.12, share=0.76, count=0.09, depth=0.14)
"""The datastore drafter's prior. It is not fitted to drafts of this kind."""
ENDED = 8
"""Answers that a prompt keeps after their end, while other answers to it are generated."""


def load(context: LoadContext, options: Options) -> ParallelSamplesDrafter:
    """Load the drafter for its entry in the registry."""
    return ParallelSamplesDrafter(context.vocab_size, context.limits, context.calibration)


@dataclass(slots=True)
class _Samples:
    """The answers to one prompt of one tenant. Each text begins with the prompt's last tokens.

    Attributes:
        running: by request, how many of the prompt's first tokens its text leaves out.
        ended: the requests that have ended, the oldest first.
    """

    texts: ParallelTexts
    running: dict[int, int] = field(default_factory=dict)
    ended: list[int] = field(default_factory=list)


class ParallelSamplesDrafter(TextSource[tuple[str, bytes]]):
    """Finds the ending of an answer in other answers to the same prompt, and drafts the tokens after it there. Not thread-safe.

    The other answers run at the same time, or ended while another ran. So the drafter helps if a prompt is sampled several times.
    All these answers have one tenant. A request that must not be remembered gives no drafts, and gets no drafts.
    """

    name = "parallel-samples"

    def __init__(
        self, vocab_size: int, limits: Limits | None = None, calibration: Calibration | Part | None = None
    ) -> None:
        """``vocab_size``: the size of the target's vocabulary."""
        super().__init__(calibration, PRIOR)
        self._vocab_size = vocab_size
        self._limits = limits or Limits()
        self._prompts: dict[tuple[str, bytes], _Samples] = {}

    def draft(self, requests: Sequence[DraftRequest]) -> _native.Drafts:
        """A request gets one tree if its prompt has other answers, else none."""
        for request in requests:
            if request.options.remember:
                self._follow(request)
        self._scorer.begin(requests)
        trees = [self._look_up(request, NO_TOKENS) for request in requests]
        self._calls += sum(map(len, trees))
        return self._scorer.score(requests, _native.Drafts(trees))

    def release(self, request_id: int) -> None:
        key = self._by_request.get(request_id)
        super().release(request_id)
        if key is None:
            return
        samples = self._prompts[key]
        del samples.running[request_id]
        samples.ended.append(request_id)
        if len(samples.ended) > ENDED:
            samples.texts.remove(samples.ended.pop(0))
        if not samples.running:
            del self._prompts[key]

    def close(self) -> None:
        super().close()
        self._prompts.clear()

    def _follow(self, request: DraftRequest) -> None:
        """Bring the request's text up to date."""
        number = request.request_id
        if number not in self._by_request:
            key = self._by_request[number] = request.options.tenant, request.tokens[: request.prompt_tokens].tobytes()
            samples = self._prompts.setdefault(key, _Samples(ParallelTexts(self._vocab_size, SOURCE)))
            samples.running[number] = max(0, request.prompt_tokens - self._limits.max_match)
        samples = self._prompts[self._by_request[number]]
        samples.texts.follow(number, request.tokens[samples.running[number] :])

    def _draft_after(self, request: DraftRequest, path: Ids) -> DraftTree:
        trees = self._look_up(request, path)
        return self._scorer.score([request], _native.Drafts([trees]), [path]).trees[0] if trees else DraftTree.empty()

    def _look_up(self, request: DraftRequest, path: Ids) -> list[DraftTree]:
        """The tree after the request's text with ``path`` appended; none if the request's prompt has no other text."""
        key, limits = self._by_request.get(request.request_id), self._limits
        texts = None if key is None else self._prompts[key].texts
        if texts is None or len(texts) < 2:
            return []
        context = np.concatenate([request.tokens[-limits.max_match :], path])
        bounds = limits.max_match, limits.min_match, limits.max_depth, nodes_wanted(request)
        return [texts.draft(request.request_id, context, *bounds)]
