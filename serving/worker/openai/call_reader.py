"""Reads tool calls in pieces from a text that is known to consist of calls."""

from __future__ import annotations

import re
from dataclasses import dataclass

_HEAD = re.compile(r'\{\s*"name"\s*:\s*"([^"\\]+)"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\S)')
_NAME = re.compile(r'\{\s*"name"\s*:\s*"([^"\\]+)"')
_SIGNS = re.compile(r'\\.|["{}\[\],]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call, or its beginning. ``arguments`` is the text of a JSON object, or the beginning of that."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class MoreArguments:
    """The next part of the arguments of the call before."""

    text: str


class CallReader:
    """Reads the calls of one text: ``push`` its parts, then ``finish`` once. Not thread-safe.

    A call is {"name": ..., "arguments" or "parameters": ...}. Everything between calls is left out: marks, brackets, white space.
    Arguments come as soon as they are generated. A text that is cut off has a last call whose arguments are cut off.
    """

    def __init__(self) -> None:
        self._text = ""  # the end of the text that is not read yet
        self._depth: int | None = None  # open brackets of the arguments; None between calls
        self._is_in_string = False

    def push(self, text: str) -> list[ToolCall | MoreArguments]:
        """Return the calls and arguments that ``text`` adds."""
        self._text += text
        found: list[ToolCall | MoreArguments] = []
        while self._text and (self._read_head(found) if self._depth is None else self._read_arguments(found)):
            pass
        return found

    def finish(self) -> list[ToolCall | MoreArguments]:
        """Return the call whose name, but not its arguments, was generated."""
        name = _NAME.search(self._text) if self._depth is None else None
        return [ToolCall(name[1], "")] if name else []

    def _read_head(self, found: list[ToolCall | MoreArguments]) -> bool:
        head = _HEAD.search(self._text)
        if head is None:
            return False
        found.append(ToolCall(head[1], ""))
        self._text, self._depth, self._is_in_string = self._text[head.end() :], 0, False
        return True

    def _read_arguments(self, found: list[ToolCall | MoreArguments]) -> bool:
        """Read to the end of the arguments, or of the text. Returns whether they have ended."""
        assert self._depth is not None
        read = 0
        for each in _SIGNS.finditer(self._text):
            sign, read = each.group(), each.end()
            if sign == '"':
                self._is_in_string = not self._is_in_string
            elif sign[0] == "\\" or self._is_in_string:
                continue
            elif sign in ",}" and not self._depth:
                return self._take(each.start(), found, ended=True)
            elif sign != ",":
                self._depth += 1 if sign in "{[" else -1
        is_escape_cut = self._text.endswith("\\") and read < len(
            self._text
        )  # the character after a backslash is missing
        return self._take(len(self._text) - is_escape_cut, found, ended=False)

    def _take(self, size: int, found: list[ToolCall | MoreArguments], ended: bool) -> bool:
        if size:
            found.append(MoreArguments(self._text[:size]))
        self._text = self._text[size:]
        if ended:
            self._depth = None
        return ended
