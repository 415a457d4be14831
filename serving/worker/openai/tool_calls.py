"""Finds tool calls in a text while it is generated."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NoReturn

from suffolk.serving.worker.openai.tool_format import ToolFormat

_HEAD = re.compile(r'\{\s*"name"\s*:\s*"([^"\\]+)"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\S)')
_NAME = re.compile(r'\{\s*"name"\s*:\s*"([^"\\]+)"')
_CALL_SIGNS = re.compile(r'\\.|["{}\[\],]', re.DOTALL)
MAX_OPEN = 16
"""Most unfinished calls in one text.

The search for calls stops after this many possible calls, because each costs a scan to the end of the text.
"""
_WHITE = " \t\r\n"
_KEYS = ("name", "type", "function", "id", "arguments", "parameters")
_OPENINGS = tuple(f'{bracket}{{"{key}"' for key in _KEYS for bracket in ("", "["))
"""Beginnings of calls without a mark. White space is removed before the comparison."""
_SIGNS = re.compile(r'\\.|["{}\[\]]', re.DOTALL)
_CUT_HEAD = re.compile(r'\s*\[?\s*(\{\s*("\w*("\s*(:\s*("[^"]*"?)?)?)?)?)?')
"""The beginning of a call, up to its arguments."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call, or its beginning. ``arguments`` is the text of a JSON object, or the beginning of this text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class MoreArguments:
    """The next part of the arguments of the previous call."""

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
        events: list[ToolCall | MoreArguments] = []
        while self._text and (self._read_head(events) if self._depth is None else self._read_arguments(events)):
            pass
        return events

    def finish(self) -> list[ToolCall | MoreArguments]:
        """Return the call whose name, but not its arguments, was generated."""
        name = _NAME.search(self._text) if self._depth is None else None
        return [ToolCall(name[1], "")] if name else []

    def _read_head(self, events: list[ToolCall | MoreArguments]) -> bool:
        head = _HEAD.search(self._text)
        if head is None:
            return False
        events.append(ToolCall(head[1], ""))
        self._text, self._depth, self._is_in_string = self._text[head.end() :], 0, False
        return True

    def _read_arguments(self, events: list[ToolCall | MoreArguments]) -> bool:
        """Read to the end of the arguments, or of the text. Returns whether they have ended."""
        assert self._depth is not None
        read = 0
        for each in _CALL_SIGNS.finditer(self._text):
            sign, read = each.group(), each.end()
            if sign == '"':
                self._is_in_string = not self._is_in_string
            elif sign[0] == "\\" or self._is_in_string:
                continue
            elif sign in ",}" and not self._depth:
                return self._take(each.start(), events, ended=True)
            elif sign != ",":
                self._depth += 1 if sign in "{[" else -1
        is_escape_cut = self._text.endswith("\\") and read < len(self._text)  # its character is missing
        return self._take(len(self._text) - is_escape_cut, events, ended=False)

    def _take(self, size: int, events: list[ToolCall | MoreArguments], ended: bool) -> bool:
        if size:
            events.append(MoreArguments(self._text[:size]))
        self._text = self._text[size:]
        if ended:
            self._depth = None
        return ended


class ToolCallParser:
    """Splits one text into content and calls: ``push`` its parts, then ``finish`` once. Not thread-safe.

    The result does not depend on how the text is split. Text that may belong to a call is held back. A malformed call, or a call
    of an unknown function, is content; the other calls of its list remain calls. White space around calls is left out. If the
    text is cut off inside a call, the arguments so far are returned.
    """

    def __init__(self, tool_format: ToolFormat, names: Collection[str]) -> None:
        """``names``: names of the functions that may be called."""
        self._format, self._names = tool_format, frozenset(names)
        self._text = ""  # the end of the text that is neither content nor a call yet
        self._json: _JsonScan | None = None  # finds the end of the call at the start of ``_text``
        self._may_be_bare = True  # whether a call without a mark may begin here
        self._follows_call = self._has_calls = False
        self._open = 0
        self._is_cut = False

    def push(self, text: str) -> list[str | ToolCall | MoreArguments]:
        """Add ``text``, and return the content and the calls that are final now."""
        self._text += text
        return self._take(final=False)

    def finish(self, is_cut: bool = False) -> list[str | ToolCall | MoreArguments]:
        """Return the content and calls that are left at the end of the text. ``is_cut``: the text ended at its length."""
        self._is_cut = is_cut
        return self._take(final=True)

    def _take(self, final: bool) -> list[str | ToolCall | MoreArguments]:
        events: list[str | ToolCall | MoreArguments] = []
        while self._text and self._advance(events, final):
            pass
        return events

    def _advance(self, events: list[str | ToolCall | MoreArguments], final: bool) -> bool:
        """Move content or calls from the beginning of the text to ``events``. Returns False if more text is needed first."""
        if self._follows_call:
            self._text = self._text.lstrip(_WHITE + self._format.separator)
            self._follows_call = not self._text
        begin, body = self._find_call()
        content = len(self._text[:begin].rstrip(_WHITE))
        if begin == len(self._text):
            self._move(self._certain_content(final), events)
            return False
        if content:
            return self._move(content, events)
        if self._json is None or self._json.begin != body:
            self._json = _JsonScan(body)
        end = self._json.find_end(self._text)
        if end is None and self._is_cut and self._take_cut(body, events, is_marked=begin != body):
            return False
        if end is None and final:
            self._open += 1
            return self._move(len(self._text) if self._open == MAX_OPEN else max(body, begin + 1), events)
        if end == _NOT_JSON:
            return self._move(max(body, begin + 1), events)
        after = None if end is None else self._after_mark(end, final)
        if end is None or after is None:
            return False
        calls = _read_calls(self._text[body:end], self._names)
        if not calls:
            return self._move(after, events)
        events += calls
        self._text, self._json = self._text[after:], None
        self._may_be_bare = self._follows_call = self._has_calls = True
        return True

    def _take_cut(self, body: int, events: list[str | ToolCall | MoreArguments], is_marked: bool) -> bool:
        """Read the text as calls that are cut off, and move them to ``events``. Returns False if it is something else.

        Without a mark, a call counts only if its arguments have begun, because other JSON begins with a name too.
        """
        reader = CallReader()
        cut = reader.push(self._text[body:])
        if not (cut or is_marked):
            return False
        cut += reader.finish()
        names = [event.name for event in cut if isinstance(event, ToolCall)]
        if not (self._names.issuperset(names) if names else _CUT_HEAD.fullmatch(self._text[body:])):
            return False
        events += cut
        self._text = ""
        return True

    def _find_call(self) -> tuple[int, int]:
        """Offsets at which a possible call and its JSON begin.

        Both equal the length of the text if there is no call.
        """
        white = len(self._text) - len(self._text.lstrip(_WHITE))
        bare = "".join(self._text[white : white + 64].split())
        if self._may_be_bare and bare and any(_is_alike(bare, opening) for opening in _OPENINGS):
            return white, white
        at = self._text.find(self._format.begin) if self._format.begin else -1
        return (at, at + len(self._format.begin)) if at >= 0 else (len(self._text), len(self._text))

    def _certain_content(self, final: bool) -> int:
        """Length of the content in a text without calls. White space and a possible start of a mark at the end do not count."""
        size = len(self._text)
        if not final:
            size -= self._mark_at_end()
        elif self._is_cut and (part := self._mark_at_end()) > 1:
            size -= part
        elif not self._has_calls:
            return size
        return len(self._text[:size].rstrip(_WHITE))

    def _mark_at_end(self) -> int:
        """Length of the beginning of a mark at the end of the text."""
        mark = self._format.begin
        return next((part for part in range(len(mark) - 1, 0, -1) if self._text.endswith(mark[:part])), 0)

    def _after_mark(self, end: int, final: bool) -> int | None:
        """Offset of the end of the mark after the JSON; None if the mark may still follow. A mark may be cut off."""
        mark, rest = self._format.end, self._text[end:].lstrip(_WHITE)
        if rest.startswith(mark):
            return len(self._text) - len(rest) + len(mark)
        if not mark.startswith(rest):
            return end
        if not final:
            return None
        return len(self._text) if self._is_cut else end

    def _move(self, size: int, events: list[str | ToolCall | MoreArguments]) -> bool:
        """Move the first ``size`` characters to ``events``, as content. Returns True."""
        if size:
            events.append(self._text[:size])
            self._may_be_bare = self._may_be_bare and not self._text[:size].strip(_WHITE)
            self._text, self._json = self._text[size:], None
        return True


_NOT_JSON = -1


class _JsonScan:
    """Finds the end of a JSON object or list that begins at ``begin``, after white space. Reads each character once."""

    def __init__(self, begin: int) -> None:
        self.begin = self._at = begin
        self._depth, self._is_in_string = 0, False
        self._end: int | None = None

    def find_end(self, text: str) -> int | None:
        """Offset of the end in ``text``, which extends the previous ``text``.

        None if incomplete; _NOT_JSON if not JSON.
        """
        if self._end is None:
            self._end = self._read(text)
        return self._end

    def _read(self, text: str) -> int | None:
        if not self._depth:
            self._at = len(text) - len(text[self._at :].lstrip(_WHITE))
            if self._at == len(text):
                return None
            if text[self._at] not in "{[":
                return _NOT_JSON
        for match in _SIGNS.finditer(text, self._at):
            sign, self._at = match.group(), match.end()
            if sign == '"':
                self._is_in_string = not self._is_in_string
            elif sign[0] != "\\" and not self._is_in_string:
                self._depth += 1 if sign in "{[" else -1
                if not self._depth:
                    return self._at
        self._at = max(self._at, len(text) - text.endswith("\\"))  # the character after a backslash is missing
        return None


def _read_calls(text: str, names: frozenset[str]) -> list[str | ToolCall]:
    """The calls in the JSON ``text``, and the JSON of other functions' calls.

    Empty if none of ``names`` is called, or if any call is malformed.
    """
    try:
        value = json.loads(text, parse_constant=_refuse)
        entries = value if isinstance(value, list) else [value]
        calls = [_read_call(each) for each in entries]
    except (ValueError, RecursionError):
        return []
    if names.isdisjoint(call.name for call in calls):
        return []
    return [
        call if call.name in names else _escaped(json.dumps(each, ensure_ascii=False))
        for call, each in zip(calls, entries, strict=True)
    ]


def _read_call(value: Any) -> ToolCall:
    """Raises ValueError if ``value`` is not a call."""
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ValueError("no call")
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = json.loads(arguments, parse_constant=_refuse)
    if not isinstance(arguments, dict):
        raise ValueError("no arguments")
    return ToolCall(value["name"], _escaped(json.dumps(arguments, ensure_ascii=False, allow_nan=False)))


def _escaped(text: str) -> str:
    """JSON in which halves of surrogate pairs are escaped again, because UTF-8 cannot hold them."""
    return text.encode(errors="backslashreplace").decode()


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _is_alike(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)
