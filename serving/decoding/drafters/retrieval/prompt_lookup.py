"""The prompt-lookup drafter finds the text's ending earlier in the text, and drafts the tokens that followed it there."""

from __future__ import annotations

from collections.abc import Sequence

from suffolk.datastore import _native
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.request_texts import ContextIndex
from suffolk.serving.decoding.drafters.calibration.calibration import Calibration, Part
from suffolk.serving.decoding.drafters.calibration.calibrator import Prior
from suffolk.serving.decoding.drafters.drafter_entry import LoadContext, Options
from suffolk.serving.decoding.drafters.registry import source_bits
from suffolk.serving.decoding.drafters.retrieval.limits import Limits
from suffolk.serving.decoding.drafters.retrieval.retrieval_scorer import Ids, nodes_wanted
from suffolk.serving.decoding.drafters.retrieval.retrieval_source import TextSource
from suffolk.serving.decoding.drafters.retrieval.with_request_texts import WithRequestTexts, request_texts
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest

SOURCE = source_bits("prompt-lookup")
PRIOR = Prior(constant=-1.91, match=0.83, share=0.88, count=0.32, depth=0.84)
"""Fitted in the same way as the prior of the datastore drafter."""


def load(context: LoadContext, options: Options) -> WithRequestTexts:
    """Load the drafter for its entry in the registry."""
    drafter = PromptLookupDrafter(context.vocab_size, context.limits, context.calibration)
    return WithRequestTexts(drafter, request_texts(context))


class PromptLookupDrafter(TextSource[ContextIndex]):
    """Looks up the longest ending of a request's tokens that occurs earlier in them. Not thread-safe.

    Its drafts are twice as deep as a datastore's (``Limits.copy_depth``).
    """

    name = "prompt-lookup"

    def __init__(
        self, vocab_size: int, limits: Limits | None = None, calibration: Calibration | Part | None = None
    ) -> None:
        """``vocab_size``: the size of the target's vocabulary."""
        super().__init__(calibration, PRIOR)
        self._vocab_size = vocab_size
        self._limits = limits or Limits()

    def draft(self, requests: Sequence[DraftRequest]) -> _native.Drafts:
        self._scorer.begin(requests)
        trees = self._look_up(requests, [self._text(request) for request in requests])
        return self._scorer.score(requests, _native.Drafts(trees, [1] * len(requests)))

    def _text(self, request: DraftRequest) -> ContextIndex:
        """The index of the request's tokens."""
        self._calls += 1
        text = self._by_request.get(request.request_id)
        if text is None:
            text = self._by_request[request.request_id] = ContextIndex(self._vocab_size, SOURCE)
        text.follow(request.tokens)
        return text

    def _draft_after(self, request: DraftRequest, path: Ids) -> DraftTree:
        text = self._by_request[request.request_id]
        text.append(path)
        try:
            drafts = _native.Drafts(self._look_up([request], [text]), [1])
        finally:
            text.truncate(len(request.tokens))  # removes the path, even after an error
        return self._scorer.score([request], drafts, [path]).trees[0]

    def _look_up(self, requests: Sequence[DraftRequest], texts: Sequence[ContextIndex]) -> _native.Trees:
        """One tree for each of ``texts``, which are of ``requests``."""
        limits, nodes = self._limits, [nodes_wanted(request) for request in requests]
        bounds = limits.max_match, limits.min_match, limits.copy_depth, nodes
        return _native.draft_contexts([text.native for text in texts], *bounds, SOURCE)
