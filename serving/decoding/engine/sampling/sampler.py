"""Samples the target's token at every row, exactly as plain decoding would sample it there."""

from __future__ import annotations

from collections.abc import Collection

import torch

from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.serving.decoding.engine.model.memory import to_device
from suffolk.serving.decoding.engine.model.row_contexts import RowContexts
from suffolk.serving.decoding.engine.sampling.candidates import PART, Candidates, keeps_all, select_candidates
from suffolk.serving.decoding.engine.sampling.grammar_matcher import GrammarMatcher
from suffolk.serving.decoding.engine.sampling.logits_processing import LogitsProcessing
from suffolk.serving.decoding.engine.sampling.row_sampling import likeliest, row_settings
from suffolk.serving.decoding.engine.sampling.seeded_noise import SeededNoise
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings

NO_TOKEN = -1
"""The sample of a row if no token is allowed after its drafted tokens. The node of this row must not be accepted."""


class Sampler:
    """Samples tokens for one request. Not thread-safe.

    A sample depends only on the seed, the row's text and its logits. The committed text of a call must extend the text of
    the previous call.

    Attributes:
        is_plain_greedy: whether a sample is the argmax of the target's unprocessed logits.
        row_settings: how ``sample_rows`` samples the same tokens; None if it cannot.
    """

    def __init__(
        self,
        settings: SamplingSettings,
        vocab_size: int,
        device: torch.device,
        matcher: GrammarMatcher | None = None,
        ends: Collection[int] = (),
    ) -> None:
        """``matcher``, ``ends`` and errors: as for ``LogitsProcessing``."""
        self._settings = settings
        self._vocab_size = vocab_size
        self._processing = LogitsProcessing(settings, vocab_size, matcher, ends)
        self._keeps_all = keeps_all(settings, vocab_size)
        self._noise = SeededNoise(settings.seed, vocab_size, device) if settings.temperature > 0 else None
        self.is_plain_greedy = self._noise is None and not self._processing
        key = 0 if self._noise is None else self._noise.key
        self.row_settings = None if self._processing else row_settings(settings, vocab_size, key)

    def sample(self, logits: torch.Tensor, contexts: RowContexts) -> torch.Tensor:
        """int64[rows], the token sampled at each row of ``logits`` float[rows, vocab].

        The sample is ``NO_TOKEN`` if processors, mask or grammar fail or allow no token after the row's drafted tokens. The
        node of this row must not be accepted. If the text reaches these tokens later in another way, that step samples again, and
        reports the failure.

        Raises:
            InvalidArgument: processors, mask or grammar fail, or no token is allowed, after the committed text.
        """
        logits, dead = self._processed(logits, contexts)
        if self._noise is None:
            sampled = likeliest(logits)
        elif self._keeps_all and logits.device.type == "cpu" and logits.dtype != torch.float64:
            positions = len(contexts.tokens) + contexts.depths
            sampled = self._noise.argmax(logits, self._settings.temperature, positions)
        else:
            candidates = select_candidates(logits, self._settings)
            sampled = self._noisy(candidates, contexts).argmax(-1)
            if candidates.tokens is not None:
                sampled = candidates.tokens.gather(1, sampled[:, None])[:, 0]
        return sampled if dead is None else sampled.masked_fill(dead, NO_TOKEN)

    def scores(self, logits: torch.Tensor, contexts: RowContexts) -> torch.Tensor:
        """The scores [rows, vocab] whose argmax ``sample`` takes: processed logits, plus float64 noise above temperature 0."""
        logits, _ = self._processed(logits, contexts)
        if self._noise is None:
            return logits
        candidates = select_candidates(logits, self._settings)
        return candidates.scatter(self._noisy(candidates, contexts), self._vocab_size, -torch.inf)

    def probabilities(self, logits: torch.Tensor, contexts: RowContexts) -> torch.Tensor:
        """float64[rows, vocab], the distribution of each row's sample; one-hot at temperature 0.

        All 0 for a row where ``sample`` gives ``NO_TOKEN``. Raises the errors of ``sample``.
        """
        logits, dead = self._processed(logits, contexts)
        if self._noise is None:
            distribution = torch.zeros_like(logits, dtype=torch.float64).scatter_(1, likeliest(logits)[:, None], 1.0)
        else:
            candidates = select_candidates(logits, self._settings)
            distribution = candidates.scatter(candidates.values.softmax(-1), self._vocab_size, 0.0)
        return distribution if dead is None else distribution.masked_fill_(dead[:, None], 0.0)

    def _processed(self, logits: torch.Tensor, contexts: RowContexts) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The processed logits, and bool[rows], whether a row allows no token, or None if every row allows a token."""
        if not self._processing:
            return logits, None
        logits = self._processing.apply(logits, contexts)
        if not self._processing.may_forbid:
            return logits, None
        dead = ~logits.amax(-1).isfinite()  # amax passes NaN on
        if bool(dead.any()):
            _require_tokens(logits, dead, contexts)
            logits[dead] = -torch.inf
            logits[dead, 0] = 0.0
        return logits, dead

    def _noisy(self, candidates: Candidates, contexts: RowContexts) -> torch.Tensor:
        """The values of ``candidates``, changed in place: the noise of token and position is added."""
        assert self._noise is not None
        values, length = candidates.values, len(contexts.tokens)
        depths = to_device(contexts.depths, values.device)
        if candidates.tokens is not None:
            return values.add_(self._noise.at((length + depths)[:, None], candidates.tokens))
        noise = self._noise.rows(length, contexts.paths.shape[1] + 1)
        rows = max(1, PART // self._vocab_size)
        for start in range(0, len(values), rows):
            values[start : start + rows] += noise[depths[start : start + rows]]
        return values


def _require_tokens(logits: torch.Tensor, dead: torch.Tensor, contexts: RowContexts) -> None:
    """Raise InvalidArgument if no token is allowed after the committed text."""
    for row in torch.nonzero(dead).flatten().tolist():
        if contexts.depths[row] == 0:
            best, position = float(logits[row].amax()), len(contexts.tokens)
            if best == -torch.inf:
                raise InvalidArgument(
                    f"no token is allowed at position {position}: ",
                    Field("bad_words"),
                    ", ",
                    Field("min_tokens"),
                    ", processors, token_mask and grammar "
                    "together forbid all; allow at least one, such as the end of the text",
                )
            raise InvalidArgument(
                f"processors gave a score of {best} at position {position}; scores must be finite or -inf"
            )
