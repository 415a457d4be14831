"""The sampling settings of a request: how tokens are sampled, and where the text ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, cast

from suffolk.datastore.checks import ABOVE_0, listed, whole_number
from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.datastore.settings import Share, Within, check_fields
from suffolk.serving.decoding.engine.sampling.grammar import Grammar

Processor = Callable[[Any, Any], Any]
"""(texts int64[k, n], scores float[k, vocab]) -> scores float[k, vocab], as a ``LogitsProcessor`` of transformers."""
TokenMask = Callable[[Any], Any]
"""(texts int64[k, n]) -> bool[k, vocab], whether a token may follow the text."""

MAX_SEED = 2**63 - 1
MAX_COUNT = 2**53
"""Largest accepted number of tokens."""
MIN_TEMPERATURE = 1e-6
"""Least temperature above 0. If logits of some thousands are divided by it, a float64 still has five decimal places for the
noise."""
VERIFICATIONS = ("match", "rejection", "typical")

Seed = Annotated[int, Within(0, MAX_SEED)]
NewTokens = Annotated[int, Within(1, MAX_COUNT)]
MinTokens = Annotated[int, Within(0, MAX_COUNT)]
Temperature = Annotated[float, Within(0, 100, "between 0 (greedy) and 100")]
TopK = Annotated[int, Within(0, MAX_COUNT, f"between 0 (no limit) and {MAX_COUNT}")]
TopP = Annotated[float, Within(ABOVE_0, 1, "above 0 and at most 1 (no limit)")]
MinP = Annotated[float, Within(0, 1, "between 0 (no limit) and 1")]
Factor = Annotated[float, Within(0.01, 100, "between 0.01 and 100 (1: off)")]
Penalty = Annotated[float, Within(-2, 2, "between -2 and 2 (0: off)")]
TokenId = Annotated[int, Within(0)]
Floor = Annotated[float, Within(0, 1)]
Bias = Annotated[float, Within(-100, 100)]
Logprobs = Annotated[int, Within(0, 20, "between 0 and 20, or None (off)")]


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """How tokens are sampled and where a text ends. Checked when made; immutable.

    The settings act in the order of transformers' ``generate``: logit bias, repetition penalty, presence and frequency penalty,
    bad words, min_tokens, processors, token mask, grammar, temperature, top-k, top-p, min-p. At temperature 0, all of these except
    the last four act.

    Attributes:
        max_new_tokens: at most this many tokens are generated; 1 or more.
        temperature: divides the logits; 0 or 1e-6..100, 0 = always the most likely token.
        top_k: sample among the ``top_k`` likeliest tokens, and ties with the last of them; 0 = no limit.
        top_p: sample among the likeliest tokens that together hold this probability; 0 < top_p <= 1.
        seed: the same seed gives the same text, with verification ``match`` with or without drafts; 0..2^63-1.
        stop: strings; the text ends before the first one. The text of a special token may be part of a match, although it is not
            shown.
        stop_token_ids: the text ends before the first of these tokens.
        min_tokens: before this many tokens, the text does not end at end-of-text tokens, ``stop_token_ids`` or stop strings.
        include_stop: show the stop string or token that ended the text.
        skip_special_tokens: leave special tokens out of the text.
        ignore_eos: do not end at the model's end-of-text tokens (for measurements).
        min_p: sample among tokens of at least ``min_p`` times the highest probability; 0..1, 0 = no limit.
        repetition_penalty: the logit of a token of the prompt or the generated text is divided by it if positive, else
            multiplied; 0.01..100, 1 = off.
        presence_penalty: subtracted from the logit of each token that was generated before; -2..2, 0 = off.
        frequency_penalty: subtracted from a token's logit for each time that it was generated before; -2..2, 0 = off.
        logit_bias: (token id, number) pairs, or a mapping of them: the number is added to the token's logit; -100..100.
        bad_words: sequences of token ids that are never completed. Unlike in transformers, a single end-of-text token
            may be forbidden too; texts then end by their length.
        logprobs: return the log-probability of each token and of this many alternatives, from the target's unprocessed
            logits; 0..20, None = off.
        prompt_logprobs: the same for each token of the prompt except the first. The text is then decoded without drafts.
        processors: functions of texts int64[k, n] and scores [k, vocab] to scores, as transformers' ``LogitsProcessor``. Each
            is called once per depth of a draft tree, with all texts of that length. Functions must be stateless, because a text
            may come several times, and may be a draft that is never accepted.
        token_mask: a function of texts int64[k, n] to bool[k, vocab], True for each token that may follow. Called like the
            processors. If no token may follow a drafted text, the function returns a row of False, or raises an error.
        grammar: the text is in this language, unless its length or a stop string ends it early. The text ends when the grammar
            allows no further token. Needs the extra ``openai``.
        verification: how drafted tokens are accepted: ``match`` (same text as plain decoding), ``rejection`` (same
            distribution) or ``typical`` (lossy).
        epsilon, delta: ``typical`` accepts tokens of probability min(epsilon, delta * exp(-entropy)) or more; above 0, at most
            1. Defaults of ReDrafter (Zhang et al. 2024, section 3.3) and Medusa (Cai et al. 2024).
        typical_floor: ``typical`` accepts only tokens of at least this probability in the model's own distribution, before all
            other settings act; 0..1, 0 = off. A worker sets it for its callers (``RemotePolicy``).

    Raises:
        InvalidArgument: a value is of another type or out of its range. numpy numbers and lists are converted.
    """

    max_new_tokens: NewTokens = 256
    temperature: Temperature = 0.0
    top_k: TopK = 0
    top_p: TopP = 1.0
    seed: Seed = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[TokenId, ...] = ()
    min_tokens: MinTokens = 0
    include_stop: bool = False
    skip_special_tokens: bool = True
    ignore_eos: bool = False
    min_p: MinP = 0.0
    repetition_penalty: Factor = 1.0
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    logit_bias: tuple[tuple[TokenId, Bias], ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()
    logprobs: Logprobs | None = None
    prompt_logprobs: Logprobs | None = None
    processors: tuple[Processor, ...] = ()
    token_mask: TokenMask | None = None
    grammar: Grammar | None = None
    verification: Annotated[str, VERIFICATIONS] = "match"
    epsilon: Share = 0.3
    delta: Share = 0.09
    typical_floor: Floor = 0.0

    def __post_init__(self) -> None:
        if self.grammar is not None and not isinstance(self.grammar, Grammar):
            raise InvalidArgument(
                Field("grammar"), f" is of type {type(self.grammar).__name__}; give a Grammar, or None (off)"
            )
        self._check_sequences()
        check_fields(self)
        if 0.0 < self.temperature < MIN_TEMPERATURE:
            raise InvalidArgument(
                Field("temperature"),
                f" is {self.temperature}; it must be 0 (greedy) or at least {MIN_TEMPERATURE}: below, the noise of "
                "a sample is lost in rounding",
            )
        if self.token_mask is not None and not callable(self.token_mask):
            raise InvalidArgument(
                Field("token_mask"), f" is {self.token_mask!r}; it must be a function of texts, or None (off)"
            )

    def ends(self, eos_ids: frozenset[int]) -> frozenset[int]:
        """The tokens that end a text. ``eos_ids``: the target's."""
        return frozenset(self.stop_token_ids) | (frozenset() if self.ignore_eos else eos_ids)

    def _check_sequences(self) -> None:
        """Check the items of the fields that are sequences, and convert lists to tuples."""
        for name, of in (("stop", "strings"), ("bad_words", "sequences of token ids"), ("processors", "functions")):
            object.__setattr__(self, name, listed(name, getattr(self, name), of))
        for at, text in enumerate(self.stop):
            if not isinstance(text, str) or not text:
                raise InvalidArgument(
                    Field("stop"), f"[{at}] is {text!r}; it must be the text, not empty, that ends the generation"
                )
        words = tuple(_word(f"bad_words[{at}]", word) for at, word in enumerate(self.bad_words))
        object.__setattr__(self, "bad_words", words)
        if isinstance(self.logit_bias, Mapping):
            object.__setattr__(self, "logit_bias", tuple(self.logit_bias.items()))
        for at, processor in enumerate(self.processors):
            if not callable(processor):
                raise InvalidArgument(f"processors[{at}] is {processor!r}; it must be a function of texts and scores")


def _word(name: str, word: object) -> tuple[int, ...]:
    items = listed(name, word, "token ids")
    if {*map(type, items)} == {int}:  # a check one by one of 65,000 ids would delay the step loop
        ids = cast("tuple[int, ...]", items)
    else:
        ids = tuple(whole_number(f"{name}[{at}]", token) for at, token in enumerate(items))
    if not ids or min(ids) < 0:
        raise InvalidArgument(Field(name), f" is {ids}; it must be one or more token ids, none below 0")
    return ids
