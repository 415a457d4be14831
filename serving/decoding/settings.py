"""What a request asks of the target: how to sample and where to stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from datastore.errors import InvalidArgument

if TYPE_CHECKING:
    import torch

    Processor = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    """(texts int64[k, n], scores float[k, vocab]) -> scores float[k, vocab], as a ``LogitsProcessor`` of transformers."""
    TokenMask = Callable[[torch.Tensor], torch.Tensor]
    """(texts int64[k, n]) -> bool[k, vocab], whether a token may follow the text."""

MAX_SEED = 2**63 - 1
MAX_LOGPROBS = 20
VERIFICATIONS = ("match", "rejection", "typical")


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """How tokens are drawn and where a text ends. Checked when made; immutable.

    What is set acts in the order of transformers' ``generate``: repetition penalty, presence and frequency penalty, bad
    words, processors, token mask, temperature, top-k, top-p, min-p. At temperature 0 all but the last four act.

    Attributes:
        max_new_tokens: at most this many tokens are generated; 1 or more.
        temperature: 0 for the most likely token, otherwise the logits are divided by it; 0..100.
        top_k: draw among the ``top_k`` likeliest tokens (and those as likely as the last of them); 0 = no limit.
        top_p: draw among the likeliest tokens that together hold this probability; 0 < top_p <= 1.
        seed: the same seed gives the same text, with or without drafts; 0..2^63-1.
        stop: the text ends before the first of these strings.
        ignore_eos: do not end at the model's end-of-text tokens (for measurements).
        min_p: draw among tokens at least this often as likely as the likeliest; 0..1, 0 = no limit.
        repetition_penalty: the logit of a token of the prompt or the generated text is divided by it if positive, else
            multiplied; above 0, 1 = off.
        presence_penalty: taken off the logit of a token that was generated before; -2..2, 0 = off.
        frequency_penalty: taken off the logit of a token as often as it was generated before; -2..2, 0 = off.
        bad_words: sequences of token ids that are never completed. Unlike in transformers an end-of-text token alone is no
            exception: who names it gets texts that end by their length.
        logprobs: give the log-probability of each token and of this many alternatives, by the target's own logits before
            anything acts on them; 0..20, None = off.
        processors: functions of texts int64[k, n] and scores [k, vocab] to scores, as transformers' ``LogitsProcessor``;
            called once per depth of a draft tree, with all texts of that length at once. They must be stateless: a text
            may come several times, and may be one that was only drafted.
        token_mask: a function of texts int64[k, n] to bool[k, vocab], True for each token that may follow (a grammar). Called
            as the processors are; a drafted text that cannot be continued gets a row of False, or an exception.
        verification: how drafted tokens are accepted: ``match`` (the text is that of plain decoding), ``rejection`` (its
            law is that of plain decoding) or ``typical`` (lossy).
        epsilon, delta: ``typical`` accepts a token of at least the probability min(epsilon, delta * exp(-entropy)); above 0, at
            most 1. The defaults are those of ReDrafter (Zhang et al. 2024, section 3.3), which took them from Medusa (Cai et al.
            2024).

    Raises:
        InvalidArgument: a value is out of its range.
    """

    max_new_tokens: int = 256
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    bad_words: tuple[tuple[int, ...], ...] = ()
    logprobs: int | None = None
    processors: tuple[Processor, ...] = ()
    token_mask: TokenMask | None = None
    verification: str = "match"
    epsilon: float = 0.3
    delta: float = 0.09

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise InvalidArgument(f"max_new_tokens is {self.max_new_tokens}; it must be 1 or more")
        if not 0.0 <= self.temperature <= 100.0:  # also refuses NaN
            raise InvalidArgument(f"temperature is {self.temperature}; it must be between 0 (greedy) and 100")
        if self.top_k < 0:
            raise InvalidArgument(f"top_k is {self.top_k}; it must be 0 (no limit) or more")
        if not 0.0 < self.top_p <= 1.0:
            raise InvalidArgument(f"top_p is {self.top_p}; it must be above 0 and at most 1 (no limit)")
        if not 0 <= self.seed <= MAX_SEED:
            raise InvalidArgument(f"seed is {self.seed}; it must be between 0 and {MAX_SEED}")
        if any(not text for text in self.stop):
            raise InvalidArgument("stop contains an empty string; name the text that should end the generation")
        if not 0.0 <= self.min_p <= 1.0:
            raise InvalidArgument(f"min_p is {self.min_p}; it must be between 0 (no limit) and 1")
        self._check_penalties()
        self._check_bad_words()
        if self.logprobs is not None and not 0 <= self.logprobs <= MAX_LOGPROBS:
            raise InvalidArgument(
                f"logprobs is {self.logprobs}; it must be between 0 and {MAX_LOGPROBS}, or None (off)"
            )
        for number, processor in enumerate(self.processors):
            if not callable(processor):
                raise InvalidArgument(
                    f"processors[{number}] is {processor!r}; it must be a function of texts and scores"
                )
        if self.token_mask is not None and not callable(self.token_mask):
            raise InvalidArgument(f"token_mask is {self.token_mask!r}; it must be a function of texts, or None (off)")
        if self.verification not in VERIFICATIONS:
            raise InvalidArgument(
                f"verification is {self.verification!r}; it must be one of {', '.join(VERIFICATIONS)}"
            )
        for name in ("epsilon", "delta"):
            if not 0.0 < getattr(self, name) <= 1.0:
                raise InvalidArgument(f"{name} is {getattr(self, name)}; it must be above 0 and at most 1")

    def _check_penalties(self) -> None:
        if not 0.0 < self.repetition_penalty < float("inf"):
            raise InvalidArgument(f"repetition_penalty is {self.repetition_penalty}; it must be above 0 (1: off)")
        for name in ("presence_penalty", "frequency_penalty"):
            if not -2.0 <= getattr(self, name) <= 2.0:
                raise InvalidArgument(f"{name} is {getattr(self, name)}; it must be between -2 and 2 (0: off)")

    def _check_bad_words(self) -> None:
        for number, word in enumerate(self.bad_words):
            if not word or min(word) < 0:
                raise InvalidArgument(f"bad_words[{number}] is {word}; it must be one or more token ids, none below 0")
