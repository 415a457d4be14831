"""Hierarchical speculative decoding for one request (algorithm 1 of the paper): each level verifies what the one below hands up.

Source: "Fast Inference via Hierarchical Speculative Decoding", section 2.3. The recursion stops at every pass and says what it
needs, so that a pass can be made for several requests at once (``passes.py``).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np
import torch

from suffolk.serving.drafters.hierarchy.draft_segment import NOTHING, Answer, Ask, DraftSegment, Path
from suffolk.serving.drafters.hierarchy.draft_state import Text
from suffolk.serving.drafters.hierarchy.drawing import FreshUniforms, Samplers, follow, resample
from suffolk.serving.drafters.hierarchy.model_level import ModelLevel
from suffolk.serving.drafters.hierarchy.retrieval_level import RetrievalLevel

StackedLevel = RetrievalLevel | ModelLevel
Asking = Generator[Ask, Answer, DraftSegment]


class Recursion:
    """The levels of a stack, from the bottom up. Not thread-safe."""

    def __init__(self, levels: Sequence[StackedLevel], vocab_size: int, eos_ids: frozenset[int]) -> None:
        """``vocab_size``: the target's; ``eos_ids``: its tokens that end a text."""
        self._levels = levels
        self._vocab_size = vocab_size
        models = [level.model.vocab_size for level in levels if isinstance(level, ModelLevel)]
        self._common = min(vocab_size, *models) if models else vocab_size
        self._eos_ids = eos_ids

    @property
    def common_vocab(self) -> int:
        """Of the ids that every level can draw and read."""
        return self._common

    def new_text(self, slot: int) -> Text:
        """A request's place in it."""
        return Text(slot, len(self._levels))

    def draft(self, text: Text) -> Asking:
        """What the top level hands the target, ``text.room`` tokens at most."""
        found = yield from self._hand_up(text, len(self._levels) - 1, ())
        return found

    def _hand_up(self, text: Text, at: int, path: Path) -> Asking:
        """What level ``at`` hands up behind ``path``: its ``tokens`` or more; fewer where the text ends or a pass is not made."""
        level, room = self._levels[at], text.room - len(path)
        if isinstance(level, RetrievalLevel):
            answer = yield Ask(at, path, count=min(level.tokens, room))
            assert isinstance(answer, DraftSegment)
            return self._readable(answer).head(room)
        got = NOTHING
        is_top = at == len(self._levels) - 1
        while len(got) < min(level.tokens, room):
            if is_top and len(got) and not text.goes_on(got):
                break
            here = path + got.tokens
            draft = (yield from self._hand_up(text, at - 1, here)) if at else NOTHING
            logits = yield Ask(at, here, draft.tokens)
            if logits is None:
                break
            assert isinstance(logits, torch.Tensor)
            verified = self._verify(text, at, here, draft, logits[:, : self._common])
            text.is_cut |= verified.is_cut
            found = self._ended(text, verified)
            got += found
            text.rounds += is_top
            if not len(found) or self._ends(text, found):
                break
        return got.head(room)

    def _verify(self, text: Text, at: int, path: Path, draft: DraftSegment, logits: torch.Tensor) -> DraftSegment:
        level = self._levels[at]
        assert isinstance(level, ModelLevel)
        samplers = text.samplers or self._samplers(text, logits.device)
        sampler = samplers.at(level.temperature)
        if not text.is_drawn:
            return follow(sampler, text.request, path, draft, logits)
        uniforms = text.uniforms[at]
        if uniforms is None:
            uniforms = text.uniforms[at] = FreshUniforms(text.request.settings.seed, at + 1, logits.device)
        return resample(sampler, uniforms, text.request, path, draft, logits, self._vocab_size)

    def _samplers(self, text: Text, device: torch.device) -> Samplers:
        text.samplers = Samplers(text.request.settings, self._common, device)
        return text.samplers

    def _readable(self, found: DraftSegment) -> DraftSegment:
        """``found`` up to the first token that a level cannot read."""
        strange = np.flatnonzero(np.asarray(found.tokens) >= self._common)
        return found.head(int(strange[0])) if len(strange) else found

    def _ended(self, text: Text, found: DraftSegment) -> DraftSegment:
        """``found`` up to the first token that ends the text: what is drawn behind it is not looked at."""
        for place, token in enumerate(found.tokens):
            if self._is_end(text, token):
                return found.head(place + 1)
        return found

    def _ends(self, text: Text, found: DraftSegment) -> bool:
        return self._is_end(text, found.tokens[-1])

    def _is_end(self, text: Text, token: int) -> bool:
        return token in self._eos_ids and not text.request.settings.ignore_eos
