"""Decodes tokens to text as they come. Incomplete characters and possible stop strings are held back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_BROKEN = "\ufffd"


class TextStream:
    """Decodes one request's tokens: ``push`` each token, then ``finish`` once. Not thread-safe.

    Text comes as pieces (text, source bits of the token that completed it).

    Attributes:
        stopped: whether a stop string is complete; the text ends before it.
    """

    def __init__(self, tokenizer: Any, stop: Sequence[str] = ()) -> None:
        """``tokenizer``: any object with a method ``decode(ids, skip_special_tokens)`` as in transformers."""
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        self._silent = frozenset(getattr(tokenizer, "all_special_ids", ()))  # these decode to nothing
        self._tokens: list[int] = []
        self._shown = 0  # tokens whose text was returned; decoding starts before them, for correct spaces
        self._start = 0
        self._held: list[tuple[str, int]] = []
        self.stopped = False

    def push(self, token: int, source: int = 0) -> list[tuple[str, int]]:
        """The text that is final after ``token``."""
        if token in self._silent:
            return []
        self._tokens.append(token)
        return self._release(self._decode(final=False), source, final=False)

    def finish(self) -> list[tuple[str, int]]:
        """The text that was held back."""
        return [] if self.stopped else self._release(self._decode(final=True), 0, final=True)

    def _decode(self, final: bool) -> str:
        before = self._text(self._tokens[self._start : self._shown])
        after = self._text(self._tokens[self._start :])
        if len(after) <= len(before) or (after.endswith(_BROKEN) and not final):
            return ""
        self._start, self._shown = self._shown, len(self._tokens)
        return after[len(before) :]

    def _text(self, tokens: list[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))

    def _release(self, text: str, source: int, final: bool) -> list[tuple[str, int]]:
        if not self._stop:
            return [(text, source)] if text else []
        if text:
            self._held.append((text, source))
        held = "".join(piece for piece, _ in self._held)
        found = [at for at in (held.find(stop) for stop in self._stop) if at >= 0]
        self.stopped = bool(found)
        return self._take(min(found) if found else len(held) if final else len(held) - self._doubtful(held))

    def _doubtful(self, text: str) -> int:
        """Length of the longest suffix of ``text`` that begins a stop string."""
        longest = min(len(text), max(map(len, self._stop)) - 1)
        return next(
            (size for size in range(longest, 0, -1) if any(stop.startswith(text[-size:]) for stop in self._stop)), 0
        )

    def _take(self, length: int) -> list[tuple[str, int]]:
        pieces: list[tuple[str, int]] = []
        while self._held and length > 0:
            text, source = self._held.pop(0)
            if len(text) > length:
                self._held.insert(0, (text[length:], source))
                text = text[:length]
            length -= len(text)
            pieces.append((text, source))
        return pieces
