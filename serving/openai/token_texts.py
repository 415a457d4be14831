"""Text and bytes of single tokens, for log-probabilities."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from transformers.convert_slow_tokenizer import bytes_to_unicode

from suffolk.serving.engine.sampling.log_probabilities import LogProbability

_BYTES = {letter: byte for byte, letter in bytes_to_unicode().items()}  # type: ignore[no-untyped-call]
_SINGLE = re.compile(r"<0x([0-9A-F]{2})>")
_LEAST = -9999.0
"""Log-probability for a probability of 0, because JSON has no infinity."""


class TokenTexts:
    """Decodes single tokens. Thread-safe."""

    def __init__(self, tokenizer: Any) -> None:
        """``tokenizer``: a tokenizer of transformers; None shows ids instead of texts."""
        self._tokenizer = tokenizer
        self._known: dict[int, tuple[str, list[int]]] = {}

    def text(self, token: int) -> str:
        return self._read(token)[0]

    def join(self, tokens: Iterable[int]) -> str:
        """The text of a prompt's ``tokens``."""
        ids = [int(token) for token in tokens]
        return "" if self._tokenizer is None else str(self._tokenizer.decode(ids, skip_special_tokens=True))

    def entry(self, each: LogProbability) -> dict[str, Any]:
        """One entry of ``choices[].logprobs.content``."""
        return {
            **self._scored(each.token, each.value),
            "top_logprobs": [self._scored(token, value) for token, value in each.alternatives],
        }

    def _scored(self, token: int, value: float) -> dict[str, Any]:
        text, data = self._read(token)
        return {"token": text, "logprob": floored(value), "bytes": data}

    def _read(self, token: int) -> tuple[str, list[int]]:
        if token not in self._known:
            self._known[token] = self._decode(token)
        return self._known[token]

    def _decode(self, token: int) -> tuple[str, list[int]]:
        if self._tokenizer is None:
            return f"token_id:{token}", list(f"token_id:{token}".encode())
        text = str(self._tokenizer.decode([token]))
        piece = str(self._tokenizer.convert_ids_to_tokens(token))
        if single := _SINGLE.fullmatch(piece):
            return text, [int(single[1], 16)]
        if all(letter in _BYTES for letter in piece):  # part of a character has bytes, but no text
            data = bytes(_BYTES[letter] for letter in piece)
            if data.decode(errors="replace") == text:
                return text, list(data)
        return text, list(text.encode())


def floored(value: float) -> float:
    """A log-probability that JSON can hold."""
    return max(value, _LEAST)
