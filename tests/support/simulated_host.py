"""A host of ``DraftCore`` without a model. The outputs are given, and verification compares drafts to them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from suffolk.serving.integrations.core import DraftCore
from suffolk.serving.integrations.running_requests import Context

PASS_SECONDS = 0.05


class HostClock:
    """The time of all simulated hosts: each pass takes ``PASS_SECONDS``, and drafting takes no time."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


CLOCK = HostClock()


class SimulatedHost:
    """Generates all ``texts`` in one batch. The first ``prompt`` tokens of each are its prompt.

    Attributes:
        passes: steps until all texts are complete.
        drafted, accepted: tokens.
    """

    def __init__(self, texts: Sequence[Sequence[int]], prompt: int, keyed: bool = True, tail: int = 0) -> None:
        """``tail``: number of context tokens; 0 for the whole text."""
        self.texts = [list(text) for text in texts]
        self.sizes = [prompt + 1] * len(texts)  # the prompt pass has sampled one token
        self.keyed, self.tail, self.prompt = keyed, tail, prompt
        self.passes = self.drafted = self.accepted = 0

    @property
    def running(self) -> list[int]:
        return [place for place, text in enumerate(self.texts) if self.sizes[place] < len(text)]

    def contexts(self) -> list[Context]:
        return [self._context(place) for place in self.running]

    def step(self, core: DraftCore, most: int = 8) -> list[list[int]]:
        """Run one pass over all running texts with the core's chains; return the chains."""
        running = self.running
        chains = core.draft_chains(self.contexts(), most)
        for place, chain in zip(running, chains, strict=True):
            self._verify(place, chain)
            if self.keyed and self.sizes[place] >= len(self.texts[place]):
                core.finish(place)
        self.passes += 1
        CLOCK.now += PASS_SECONDS
        return chains

    def run(self, core: DraftCore, most: int = 8) -> int:
        """Generate all texts; return the number of passes."""
        while self.running:
            self.step(core, most)
        return self.passes

    def _context(self, place: int) -> Context:
        tokens = np.array(self.texts[place][: self.sizes[place]], np.int32)
        return Context(
            tokens[-self.tail :] if self.tail else tokens,
            place if self.keyed else None,
            len(tokens) if self.tail else None,
            self.prompt,
        )

    def _verify(self, place: int, chain: Sequence[int]) -> None:
        text, size = self.texts[place], self.sizes[place]
        taken = 0
        while taken < len(chain) and size + taken < len(text) - 1 and chain[taken] == text[size + taken]:
            taken += 1
        self.sizes[place] = size + taken + 1
        self.drafted += len(chain)
        self.accepted += taken
