"""Text and bytes of single tokens, for log-probabilities."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from transformers.convert_slow_tokenizer import bytes_to_unicode

from suffolk.serving.decoding.engine.loop.text_stream import TextStream
from suffolk.serving.decoding.engine.sampling.log_probabilities import LogProbability

_BYTES = {letter: byte for byte, letter in bytes_to_unicode().items()}  # type: ignore[no-untyped-call]
_SINGLE = re.compile(r"<0x([0-9A-F]{2})>")
_BROKEN = "\ufffd"
_SPACE = "\u2581"
"""A space in the tokens of SentencePiece."""
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

    def name(self, token: int, as_id: bool = False) -> str:
        """The text of a token, or its bytes as in OpenAI's API if it is a part of a character; ``as_id``: its id as in vLLM."""
        if as_id:
            return f"token_id:{token}"
        text, data = self._read(token)
        return text if _BROKEN not in text else "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)

    def token(self, text: str) -> int:
        """The id of a token that was added to the vocabulary; -1 if there is no such token."""
        return -1 if self._tokenizer is None else int(self._tokenizer.get_added_vocab().get(text, -1))

    def join(self, tokens: Iterable[int], skip_special_tokens: bool = True) -> str:
        """The text of a prompt's ``tokens``."""
        ids = [int(token) for token in tokens]
        if self._tokenizer is None:
            return ""
        return str(self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens))

    def stream(self, skip_special_tokens: bool = True) -> TextStream | None:
        """Decodes tokens as they come; None without a tokenizer."""
        if self._tokenizer is None:
            return None
        return TextStream(self._tokenizer, skip_special_tokens=skip_special_tokens)

    def entry(self, each: LogProbability, as_ids: bool = False) -> dict[str, Any]:
        """One entry of ``choices[].logprobs.content``."""
        return {
            **self._scored(each.token, each.value, as_ids),
            "top_logprobs": [self._scored(token, value, as_ids) for token, value in each.alternatives],
        }

    def top(self, each: LogProbability, as_ids: bool = False) -> dict[str, float]:
        """The token itself and its alternatives, by name. If several tokens have the same name, all but the first are named by
        their ids."""
        found: dict[str, float] = {}
        for token, value in {each.token: each.value, **dict(each.alternatives)}.items():
            name = self.name(token, as_ids)
            found[self.name(token, as_ids or name in found)] = floored(value)
        return found

    def prompt_entry(self, each: LogProbability) -> dict[str, Any]:
        """One entry of ``prompt_logprobs``, as in vLLM. If a token is not an alternative, its rank is null."""
        ranks = {token: rank for rank, (token, _) in enumerate(each.alternatives, start=1)}
        return {
            str(token): {"logprob": floored(value), "rank": ranks.get(token), "decoded_token": self.text(token)}
            for token, value in (*each.alternatives, (each.token, each.value))
        }

    def _scored(self, token: int, value: float, as_id: bool) -> dict[str, Any]:
        text, data = self._read(token)
        return {"token": self.name(token, True) if as_id else text, "logprob": floored(value), "bytes": data}

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
        if piece.startswith(_SPACE):  # decoders drop the first space of a text, but this token follows others
            text = str(self._tokenizer.decode([token, token]))[len(text) :]
        if all(letter in _BYTES for letter in piece):  # part of a character has bytes, but no text
            data = bytes(_BYTES[letter] for letter in piece)
            if data.decode(errors="replace") == text:
                return text, list(data)
        return text, list(text.encode())


def floored(value: float) -> float:
    """A log-probability that JSON can hold."""
    return max(value, _LEAST)
