"""One request's part of a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import SuffolkError
from suffolk.serving.decoding.engine.loop.draft_candidate import DraftCandidate
from suffolk.serving.decoding.engine.loop.drafter import Proposal, tree_of
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.step import Step
from suffolk.serving.decoding.engine.loop.step_trace import TRACED_CONTEXT, StepTrace
from suffolk.serving.decoding.engine.loop.verify_step import Outcome
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout, lay_out

NO_TREE = DraftTree.empty()
_FIRST = np.zeros(1, np.int64)


@dataclass(slots=True)
class BatchEntry:
    """One request's rows in a pass. They are a chunk of its prompt, or its last token and its draft.

    Attributes:
        layout: the rows.
        wanted: how many of the last rows need logits; 0 while the request reads its prompt, unless the prompt is scored.
        proposal: the draft among the rows, possibly empty.
        candidate: the draft as the planner saw it; None if the request had none.
        whole_draft: the draft before the planner cut it, for traces.
    """

    request: Request
    layout: TreeLayout
    wanted: int
    proposal: Proposal
    candidate: DraftCandidate | None
    whole_draft: Proposal | None = None

    @property
    def reading(self) -> bool:
        """Whether no row needs logits."""
        return not self.wanted

    @property
    def has_draft(self) -> bool:
        return len(tree_of(self.proposal)) > 0

    def without_draft(self) -> BatchEntry:
        """The same entry without its draft. The request's drafter still observes the tokens that follow."""
        if not self.has_draft:
            return self
        plain = DraftTree.empty()
        if self.candidate is not None:
            self.candidate.verified = 0
        return BatchEntry(
            self.request, lay_out(int(self.layout.tokens[0]), plain), 1, plain, self.candidate, self.whole_draft
        )

    def kept(self, outcome: Outcome | SuffolkError | None) -> npt.NDArray[np.int64]:
        """int64[k], the rows that the cache keeps: all rows of a prompt, or those of the last token and the accepted nodes."""
        if isinstance(outcome, Outcome) and len(outcome.path):
            return np.concatenate([_FIRST, outcome.path + 1])
        size = 1 if self.has_draft else len(self.layout)
        return _FIRST if size == 1 else np.arange(size)

    def trace(self, outcome: Outcome, step: Step, seconds: Mapping[str, float]) -> StepTrace:
        """The trace of ``step``, which ``outcome`` led to and which the request already includes."""
        request, path = self.request, outcome.path.tolist()
        begin = request.length - len(step.tokens)
        return StepTrace(
            context=tuple(request.tokens[max(0, begin - TRACED_CONTEXT) : begin].tolist()),
            tree=DraftTree.empty() if self.whole_draft is None else tree_of(self.whole_draft),
            verified=len(tree_of(self.proposal)),
            accepted=tuple(path[: len(step.tokens)]),
            sampled=outcome.token if len(step.tokens) > len(path) else None,
            pieces=step.pieces,
            seconds=dict(seconds),
        )
