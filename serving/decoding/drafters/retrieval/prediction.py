"""The prediction drafter drafts from the predicted text of a request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy

import numpy as np

from suffolk.datastore import _native
from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.calibration.calibration import Calibration, Part
from suffolk.serving.decoding.drafters.calibration.calibrator import Prior
from suffolk.serving.decoding.drafters.drafter_entry import LoadContext, Options
from suffolk.serving.decoding.drafters.retrieval.retrieval_scorer import Ids
from suffolk.serving.decoding.drafters.retrieval.retrieval_source import TextSource
from suffolk.serving.decoding.engine.loop.draft_options import PREDICTION_SOURCE_ID
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest

SOURCE = 1 << PREDICTION_SOURCE_ID
PRIOR = Prior(constant=-1.29, match=0.84, share=0.0, count=0.0, depth=1.52)
"""Fitted to 200 edits of Python files in the history of this repository (``research.fit_prediction``)."""
MAX_SUFFIX = 16
"""The longest suffix of the text that is searched in the prediction."""
CONFIDENT = 8
"""Matched tokens after which an alignment counts as right."""


def load(context: LoadContext, options: Options) -> PredictionDrafter:
    """Load the drafter for its entry in the registry."""
    return PredictionDrafter(context.calibration)


class PredictionDrafter(TextSource["PredictionAlignment"]):
    """Drafts the continuation of a request's prediction from the aligned position: a chain of up to ``max_nodes`` tokens.

    Requests without a prediction get no draft, at no cost. Not thread-safe.
    """

    name = "prediction"

    def __init__(self, calibration: Calibration | Part | None = None) -> None:
        super().__init__(calibration, PRIOR)

    def draft(self, requests: Sequence[DraftRequest]) -> _native.Drafts:
        """A request gets one tree if it has a prediction, else none."""
        drafts = _native.Drafts(
            [() if each.prediction is None else [self._draft(each, each.prediction)] for each in requests]
        )
        self._scorer.begin(requests)
        return self._scorer.score(requests, drafts)

    def _draft(self, request: DraftRequest, prediction: Ids) -> DraftTree:
        self._calls += 1
        text = request.tokens[request.prompt_tokens :]
        alignment = self._by_request.get(request.request_id)
        if alignment is None or alignment.size > len(text):  # the request was rolled back
            alignment = self._by_request[request.request_id] = PredictionAlignment(prediction)
        alignment.append(text[alignment.size :].tolist())
        return _chain(alignment, request.max_nodes)

    def _draft_after(self, request: DraftRequest, path: Ids) -> DraftTree:
        if request.prediction is None:
            return DraftTree.empty()
        alignment = copy(self._by_request[request.request_id])  # its arrays and lists are replaced, never changed
        alignment.append(path.tolist())
        drafts = _native.Drafts([[_chain(alignment, request.max_nodes)]])
        return self._scorer.score([request], drafts, [path]).trees[0]


def _chain(alignment: PredictionAlignment, max_nodes: int) -> DraftTree:
    """The continuation of the prediction.

    The match length is the number of shared tokens plus one. So it is above 1 even for a match of one token.
    """
    tokens = alignment.prediction[alignment.position : alignment.position + max_nodes]
    size = len(tokens)
    return DraftTree(
        tokens.copy(),
        np.arange(-1, size - 1, dtype=np.int32),
        np.ones(size, np.float32),
        np.full(size, SOURCE, np.uint32),
        np.ones(size, np.uint64),
        alignment.matched + 1,
        1,
    )


class PredictionAlignment:
    """The position in a prediction where the text goes on. Not thread-safe.

    While the text follows the prediction, the position moves with it. After a difference, the text's longest suffix that occurs
    in the prediction is searched. The position is then at the end of one occurrence of this suffix: the first occurrence after
    the last confident position, or if there is none, the last occurrence before it. After a difference, a token takes time linear
    in the length of the prediction. Otherwise it takes constant time.

    Attributes:
        prediction: int32[k], its tokens.
        size: tokens of the text so far.
        position: where in the prediction the text goes on, 0..k.
        matched: tokens before ``position`` that end the text; 0 if even its last token does not occur in the prediction.
        anchor: the last confident position, at first 0. The text goes on there when an insertion ends.
    """

    def __init__(self, prediction: Ids) -> None:
        self.prediction = prediction
        self.size = self.position = self.matched = self.anchor = 0
        self._suffix: list[int] = []

    def append(self, tokens: Iterable[int]) -> None:
        """Move along the next ``tokens`` of the text."""
        for token in tokens:
            self.size += 1
            self._suffix = [*self._suffix[1 - MAX_SUFFIX :], token]
            if self.position < len(self.prediction) and self.prediction[self.position] == token:
                self.position += 1
                self.matched += 1
            else:
                self._search()
            if self.matched >= CONFIDENT:
                self.anchor = self.position

    def _search(self) -> None:
        """Find the position anew, by the longest suffix."""
        ends = np.flatnonzero(self.prediction == self._suffix[-1])
        self.matched = 0
        while len(ends):
            longest, self.matched = ends, self.matched + 1
            if self.matched == len(self._suffix):
                break
            ends = ends[ends >= self.matched]
            ends = ends[self.prediction[ends - self.matched] == self._suffix[-1 - self.matched]]
        if self.matched:
            after = longest[longest >= self.anchor]
            self.position = int(after[0] if len(after) else longest[-1]) + 1
        else:
            self.position = self.anchor
