"""Sampling settings of a request: how tokens are sampled and where the text ends."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.engine.checks import listed, number, whole_number
from suffolk.serving.engine.sampling.grammar import Grammar

if TYPE_CHECKING:
    import torch

    Processor = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    """(texts int64[k, n], scores float[k, vocab]) -> scores float[k, vocab], as a ``LogitsProcessor`` of transformers."""
    TokenMask = Callable[[torch.Tensor], torch.Tensor]
    """(texts int64[k, n]) -> bool[k, vocab], whether a token may follow the text."""

MAX_SEED = 2**63 - 1
MAX_LOGPROBS = 20
MAX_COUNT = 2**53
"""Largest accepted number of tokens."""
MIN_TEMPERATURE = 1e-6
"""Logits of some thousands divided by it leave five decimal places of a float64 for the noise."""
VERIFICATIONS = ("match", "rejection", "typical")

_ABOVE_0 = math.ulp(0.0)
_WHOLE = {
    "max_new_tokens": (1, MAX_COUNT, f"between 1 and {MAX_COUNT}"),
    "top_k": (0, MAX_COUNT, f"between 0 (no limit) and {MAX_COUNT}"),
    "seed": (0, MAX_SEED, f"between 0 and {MAX_SEED}"),
}
_NUMBERS = {
    "temperature": (0.0, 100.0, "between 0 (greedy) and 100"),
    "top_p": (_ABOVE_0, 1.0, "above 0 and at most 1 (no limit)"),
    "min_p": (0.0, 1.0, "between 0 (no limit) and 1"),
    "repetition_penalty": (0.01, 100.0, "between 0.01 and 100 (1: off)"),
    "presence_penalty": (-2.0, 2.0, "between -2 and 2 (0: off)"),
    "frequency_penalty": (-2.0, 2.0, "between -2 and 2 (0: off)"),
    "epsilon": (_ABOVE_0, 1.0, "above 0 and at most 1"),
    "delta": (_ABOVE_0, 1.0, "above 0 and at most 1"),
}
"""The least, the most, and both in words."""


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """How tokens are sampled and where a text ends. Checked when made; immutable.

    The settings act in the order of transformers' ``generate``: repetition penalty, presence and frequency penalty, bad
    words, processors, token mask, grammar, temperature, top-k, top-p, min-p. At temperature 0 all but the last four act.

    Attributes:
        max_new_tokens: at most this many tokens are generated; 1 or more.
        temperature: divides the logits; 0 or 1e-6..100, 0 = always the most likely token.
        top_k: sample among the ``top_k`` likeliest tokens (and those as likely as the last of them); 0 = no limit.
        top_p: sample among the likeliest tokens that together hold this probability; 0 < top_p <= 1.
        seed: the same seed gives the same text, under verification ``match`` with or without drafts; 0..2^63-1.
        stop: the text ends before the first of these strings.
        ignore_eos: do not end at the model's end-of-text tokens (for measurements).
        min_p: sample among tokens of at least ``min_p`` times the highest probability; 0..1, 0 = no limit.
        repetition_penalty: the logit of a token of the prompt or the generated text is divided by it if positive, else
            multiplied; 0.01..100, 1 = off.
        presence_penalty: taken off the logit of a token that was generated before; -2..2, 0 = off.
        frequency_penalty: taken off the logit of a token as often as it was generated before; -2..2, 0 = off.
        bad_words: sequences of token ids that are never completed. Unlike in transformers an end-of-text token alone is
            forbidden too: texts then end by their length.
        logprobs: return the log-probability of each token and of this many alternatives, from the target's unprocessed
            logits; 0..20, None = off.
        processors: functions of texts int64[k, n] and scores [k, vocab] to scores, as transformers' ``LogitsProcessor``.
            Each is called once per depth of a draft tree, with all texts of that length. They must be stateless: a text may
            occur several times, and may be only drafted.
        token_mask: a function of texts int64[k, n] to bool[k, vocab], True for each token that may follow (a grammar). Called
            like the processors. For a drafted text without continuation it returns a row of False, or raises.
        grammar: the text is in this language, if it does not end early by its length or a stop string. It ends where it is
            complete. Needs the extra ``openai``.
        verification: how drafted tokens are accepted: ``match`` (the text is that of plain decoding), ``rejection`` (its
            distribution is that of plain decoding) or ``typical`` (lossy).
        epsilon, delta: ``typical`` accepts a token of at least the probability min(epsilon, delta * exp(-entropy)); above 0, at
            most 1. The defaults are those of ReDrafter (Zhang et al. 2024, section 3.3) and Medusa (Cai et al. 2024).

    Raises:
        InvalidArgument: a value is of another type or out of its range. numpy numbers and lists are converted.
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
    grammar: Grammar | None = None
    verification: str = "match"
    epsilon: float = 0.3
    delta: float = 0.09

    def __post_init__(self) -> None:
        self._check_numbers()
        self._check_sequences()
        if self.verification not in VERIFICATIONS:
            raise InvalidArgument(
                f"verification is {self.verification!r}; it must be one of {', '.join(VERIFICATIONS)}"
            )
        if not isinstance(self.ignore_eos, bool):
            raise InvalidArgument(f"ignore_eos is {self.ignore_eos!r}; it must be True or False")
        if self.token_mask is not None and not callable(self.token_mask):
            raise InvalidArgument(f"token_mask is {self.token_mask!r}; it must be a function of texts, or None (off)")
        if self.grammar is not None and not isinstance(self.grammar, Grammar):
            raise InvalidArgument(f"grammar is of type {type(self.grammar).__name__}; give a Grammar, or None (off)")

    def _check_numbers(self) -> None:
        for ranges, convert in ((_WHOLE, whole_number), (_NUMBERS, number)):
            for name, (low, high, words) in ranges.items():
                value = convert(name, getattr(self, name))
                if not low <= value <= high:  # also refuses NaN
                    raise InvalidArgument(f"{name} is {value}; it must be {words}")
                self._set(name, value)
        if 0.0 < self.temperature < MIN_TEMPERATURE:
            raise InvalidArgument(
                f"temperature is {self.temperature}; it must be 0 (greedy) or at least {MIN_TEMPERATURE}: below, the noise of "
                "a sample is lost in rounding"
            )
        if self.logprobs is not None:
            self._set("logprobs", whole_number("logprobs", self.logprobs))
            if not 0 <= self.logprobs <= MAX_LOGPROBS:
                raise InvalidArgument(
                    f"logprobs is {self.logprobs}; it must be between 0 and {MAX_LOGPROBS}, or None (off)"
                )

    def _check_sequences(self) -> None:
        for name, of in (("stop", "strings"), ("bad_words", "sequences of token ids"), ("processors", "functions")):
            self._set(name, listed(name, getattr(self, name), of))
        for at, text in enumerate(self.stop):
            if not isinstance(text, str) or not text:
                raise InvalidArgument(
                    f"stop[{at}] is {text!r}; it must be the text, not empty, that ends the generation"
                )
        self._set("bad_words", tuple(_word(f"bad_words[{at}]", word) for at, word in enumerate(self.bad_words)))
        for at, processor in enumerate(self.processors):
            if not callable(processor):
                raise InvalidArgument(f"processors[{at}] is {processor!r}; it must be a function of texts and scores")

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # __post_init__ alone calls this


def settings_or_default(settings: SamplingSettings | None) -> SamplingSettings:
    """``settings``; for None greedy decoding of up to 256 tokens. Raises InvalidArgument for another type."""
    if settings is None:
        return SamplingSettings()
    if not isinstance(settings, SamplingSettings):
        raise InvalidArgument(f"settings is of type {type(settings).__name__}; give SamplingSettings(...) or None")
    return settings


def _word(name: str, word: object) -> tuple[int, ...]:
    ids = tuple(whole_number(f"{name}[{at}]", token) for at, token in enumerate(listed(name, word, "token ids")))
    if not ids or min(ids) < 0:
        raise InvalidArgument(f"{name} is {ids}; it must be one or more token ids, none below 0")
    return ids
