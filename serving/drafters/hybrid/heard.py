"""What is known of how far retrieval alone gets in a request."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.drafters.hybrid.accepted_length import reach
from suffolk.serving.drafters.hybrid.precedents import Outlook, Steps
from suffolk.serving.drafters.retrieval.retrieval_scorer import Ids

_BELIEF = 1.0
"""Tokens' worth of belief in the promises of what is retrieved for a new text."""
_REMEMBERED = 64
"""Steps of a request of which it is known what retrieval brought."""


@dataclass(slots=True)
class Heard:
    """How far retrieval alone got in a request's steps. Not thread-safe.

    Attributes:
        prompt: the request's; outlook: what those before tell of it.
        steps: so far; tokens: that retrieval brought in them; expected: that it had promised.
        brought: the same step by step, the last ones.
        retrieved: what is there now; raw: tokens that it promises; promised: as far as such promises are kept in all texts.
    """

    prompt: Ids
    outlook: Outlook = Outlook()
    steps: int = 0
    tokens: int = 0
    expected: float = 0.0
    brought: deque[int] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    retrieved: DraftTree = field(default_factory=DraftTree.empty)
    raw: float = 0.0
    promised: float = 0.0

    @property
    def promise(self) -> float:
        """Tokens that what is retrieved promises now, as far as such promises were kept in all texts and in this one."""
        kept = (self.tokens + _BELIEF) / (self.expected + _BELIEF)
        return min(1.0, kept) * self.promised

    @property
    def already(self) -> Steps:
        """What retrieval brings, step by step: see ``DraftRequest.already``."""
        return self.outlook.steps(self.brought)

    def learn(self, tokens: Ids) -> None:
        """The target's ``tokens`` came."""
        self.steps += 1
        self.expected += self.promised
        self.brought.append(min(len(tokens) - 1, reach(self.retrieved, tokens)))
        self.tokens += self.brought[-1]
