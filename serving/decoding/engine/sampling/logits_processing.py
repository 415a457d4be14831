"""Everything that changes the target's logits before sampling, in the order of transformers' ``generate``."""

from __future__ import annotations

from collections.abc import Collection

import torch

from suffolk.serving.decoding.engine.model.row_contexts import RowContexts
from suffolk.serving.decoding.engine.sampling.bad_words import BadWords
from suffolk.serving.decoding.engine.sampling.grammar_matcher import GrammarMatcher
from suffolk.serving.decoding.engine.sampling.logit_bias import LogitBias
from suffolk.serving.decoding.engine.sampling.min_tokens import MinTokens
from suffolk.serving.decoding.engine.sampling.penalties import Penalties
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.decoding.engine.sampling.user_functions import UserFunctions


class LogitsProcessing:
    """Logit bias, penalties, bad words, min_tokens, processors, token mask and grammar of one request. Not thread-safe.

    The order is that of ``GenerationMixin._get_logits_processor``. transformers has no presence and frequency penalty; they are
    applied with the repetition penalty.
    """

    def __init__(
        self,
        settings: SamplingSettings,
        vocab_size: int,
        matcher: GrammarMatcher | None = None,
        ends: Collection[int] = (),
    ) -> None:
        """
        Args:
            matcher: the matcher of ``settings.grammar``.
            ends: the tokens that end the text, for ``settings.min_tokens``.

        Raises InvalidArgument if a token is not of this vocabulary.
        """
        held = settings.min_tokens > 0 and bool(ends)
        penalised = settings.repetition_penalty != 1.0 or settings.presence_penalty or settings.frequency_penalty
        functions = bool(settings.processors) or settings.token_mask is not None
        self.may_forbid = bool(settings.bad_words) or held or functions or matcher is not None
        """Whether a row may be left without any token."""
        self._parts: list[LogitBias | Penalties | BadWords | MinTokens | UserFunctions | GrammarMatcher] = []
        if settings.logit_bias:
            self._parts.append(LogitBias(settings.logit_bias, vocab_size))
        if penalised:
            self._parts.append(Penalties(settings, vocab_size))
        if settings.bad_words:
            self._parts.append(BadWords(settings.bad_words, vocab_size))
        if held:
            self._parts.append(MinTokens(settings.min_tokens, ends))
        if functions:
            self._parts.append(UserFunctions(settings))
        if matcher is not None:
            self._parts.append(matcher)

    def __bool__(self) -> bool:
        """Whether any of these parts changes logits."""
        return bool(self._parts)

    def apply(self, logits: torch.Tensor, contexts: RowContexts) -> torch.Tensor:
        """A changed copy of ``logits`` float[rows, vocab], in fp32 (fp64 if they are).

        Raises:
            InvalidArgument: a user's function or the grammar fails on the committed text.
        """
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32), copy=True)
        for part in self._parts:
            logits = part.apply(logits, contexts)
        return logits
