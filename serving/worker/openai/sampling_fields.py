"""Sampling settings of a request body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from suffolk.datastore.checks import ABOVE_0
from suffolk.serving.decoding.engine.loop.prompt import encode_text
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import MIN_TEMPERATURE
from suffolk.serving.net.http_body import InvalidField
from suffolk.serving.worker import limits
from suffolk.serving.worker.openai.bodies import CompletionBody, GenerationBody

_ID_DIGITS = 20
"""Most digits of a token id in ``logit_bias``."""
_SETTINGS = ("min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "ignore_eos")


def sampling_settings(body: GenerationBody, target: Target, length: int, logprobs: int | None) -> dict[str, Any]:
    """All sampling settings except seed and grammar."""
    stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    biases = _biases(body.logit_bias or {})
    limits.check_stops("stop", stop)
    if body.min_tokens is not None and body.min_tokens > length:
        raise InvalidField("min_tokens", f" is {body.min_tokens}, and {body.length_field} is {length}; lower it")
    given = {name: getattr(body, name) for name in _SETTINGS}
    return {name: value for name, value in given.items() if value is not None} | {
        "max_new_tokens": length,
        "temperature": _temperature(body.temperature),
        "top_k": max(body.top_k or 0, 0),  # -1 means no limit in vLLM's API
        "top_p": 1.0 if body.top_p is None else body.top_p or ABOVE_0,  # 0: the likeliest token, as in OpenAI's API
        "stop": stop,
        "stop_token_ids": tuple(body.stop_token_ids or ()),
        "include_stop": body.include_stop_str_in_output is True,
        "min_tokens": body.min_tokens or 0,
        "skip_special_tokens": body.skip_special_tokens is not False,
        "bad_words": _bad_words(target, body.bad_words or ()),
        "logit_bias": biases,
        "logprobs": logprobs,
        "prompt_logprobs": _prompt_logprobs(body, logprobs),
    }


def _temperature(given: float | None) -> float:
    """OpenAI's default is 1. As in vLLM, decoding is greedy below the engine's least temperature, for example at 1e-8, which some
    clients send."""
    if given is None:
        return 1.0
    return 0.0 if 0 < given < MIN_TEMPERATURE else given


def drops_answer(body: GenerationBody) -> bool:
    """Whether the request asks only for its prompt. If so, one token is generated, but not shown."""
    return isinstance(body, CompletionBody) and body.length == 0


def _prompt_logprobs(body: GenerationBody, logprobs: int | None) -> int | None:
    """The alternatives for each token of the prompt; None for no log-probabilities of it."""
    echoed = logprobs if isinstance(body, CompletionBody) and body.echo else None
    given = [each for each in (echoed, body.prompt_logprobs) if each is not None]
    return max(given, default=None)


def _bad_words(target: Target, words: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """The tokens of each word: at the beginning of a text, and inside a text after a space."""
    if (blank := next((word for word in words if not word.strip()), None)) is not None:
        raise InvalidField(
            "bad_words", f" has {blank!r}, which is no word; leave it out, or ban tokens with logit_bias"
        )
    texts = [text for word in words for text in (word, f" {word.lstrip()}")]
    found = dict.fromkeys(tuple(encode_text(target, text, special_tokens=False)) for text in texts)
    for word in found:
        if len(word) > limits.MAX_BAD_WORD:
            text = f": one of them has {len(word)} tokens; the limit is {limits.MAX_BAD_WORD}; shorten it"
            raise InvalidField("bad_words", text)
    return tuple(found)


def _biases(biases: dict[str, float]) -> dict[int, float]:
    for token, value in biases.items():
        if not (token.isascii() and token.isdigit() and len(token) <= _ID_DIGITS):
            raise InvalidField("logit_bias", f" has the key {token[:20]!r}; its keys must be token ids")
        if not -100 <= value <= 100:  # the settings would name its place in a list
            raise InvalidField("logit_bias", f" is {value:g} for token {token}; it must be between -100 and 100")
    return {int(token): value for token, value in biases.items()}
