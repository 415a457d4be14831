"""Splits the thoughts of reasoning models off. The models write them before the answer, between two marks."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.serving.decoding.engine.sampling.grammar import Grammar
from suffolk.serving.worker.openai.bodies import ChatBody
from suffolk.serving.worker.openai.content import text_of
from suffolk.serving.worker.openai.tool_choice import mark_rule

if TYPE_CHECKING:
    from suffolk.serving.worker.openai.token_texts import TokenTexts

AUTO, NONE = "auto", "none"
_WHITE = " \t\r\n"
_TAIL = 32
"""How many tokens at the end of a prompt are searched for a mark."""


@dataclass(frozen=True, slots=True)
class ReasoningMarks:
    """The texts before and after a model's thought.

    Attributes:
        is_special: whether the marks are special tokens, which decoded texts omit by default.
    """

    begin: str
    end: str
    is_special: bool = False


_KNOWN = (
    ("<think>", "</think>"),  # DeepSeek, Qwen, GLM and most others
    ("[THINK]", "[/THINK]"),  # Mistral
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),  # Cohere
)


def find_marks(tokenizer: Any, name: str = AUTO) -> ReasoningMarks | None:
    """Find the marks that ``name`` means: both marks with a space between them, ``none``, or ``auto`` for the marks in the chat
    template or vocabulary.

    Raises InvalidArgument for any other ``name``.
    """
    if name == NONE:
        return None
    added = {} if tokenizer is None else tokenizer.get_added_vocab()
    source = str(getattr(tokenizer, "chat_template", ""))
    known = [each for each in _KNOWN if any(mark in source for mark in each) or added.keys() >= set(each)]
    pair = known[:1] if name == AUTO else [tuple(name.split())]
    if not pair:
        return None
    if len(pair[0]) != 2 or pair[0][0] == pair[0][1]:
        raise InvalidArgument(
            Field("reasoning"), f" is {name!r}; give {AUTO}, {NONE} or two marks, such as '<think> </think>'"
        )
    begin, end = pair[0]
    tokens = getattr(tokenizer, "added_tokens_decoder", {}).values()
    return ReasoningMarks(begin, end, any(token.special and str(token) in pair[0] for token in tokens))


@dataclass(frozen=True, slots=True)
class Thought:
    """The thought with which an answer may begin.

    Attributes:
        is_open: whether the prompt already has the first mark, so that the answer begins inside the thought.
    """

    marks: ReasoningMarks
    is_open: bool

    def before(self, grammar: Grammar | None, tokenizer: Any) -> Grammar | None:
        """``grammar``, changed so that it constrains only the text after the thought."""
        if grammar is None:
            return None
        end = mark_rule(self.marks.end, tokenizer)
        if end.startswith("<["):
            rules = f"thought: /(.|\\n)*/ {end}"
        else:
            rules = f"thought[suffix={json.dumps(self.marks.end)}]: /(.|\\n)*/"
        whole = "thought /[ \\t\\r\\n]{0,4}/"
        if not self.is_open:
            whole = f"({mark_rule(self.marks.begin, tokenizer)} {whole})?"
        return replace(grammar, before=f"before: {whole}\n{rules}")


def thought_of(
    marks: ReasoningMarks | None, body: ChatBody, texts: TokenTexts, prompt: Sequence[int]
) -> Thought | None:
    """The thought with which the answer to ``prompt`` may begin. None if there are no marks, or the prompt ends with the second
    mark. Also None if the answer continues a message that is neither empty nor inside a thought."""
    if marks is None:
        return None
    text = texts.join(prompt[-_TAIL:], skip_special_tokens=False)
    if body.continue_final_message and body.messages:
        text = text_of(body.messages[-1].content)
        is_open = text.rfind(marks.begin) > text.rfind(marks.end)
        return Thought(marks, True) if is_open else None if text.strip() else Thought(marks, False)
    is_closed = text.rstrip(_WHITE).endswith(marks.end)
    return None if is_closed else Thought(marks, text.rstrip(_WHITE).endswith(marks.begin))


class ReasoningParser:
    """Splits one text into reasoning and content: ``push`` its parts, the last one as ``final``. Not thread-safe.

    The result does not depend on how the text is split. White space around the thought is left out.

    Attributes:
        is_inside: whether the text so far ends inside the thought.
        has_ended: whether the text has the end of the thought.
    """

    def __init__(self, thought: Thought) -> None:
        self._thought = thought
        self._text = ""  # the end of the text that is not returned yet
        self._has_begun = False  # whether the thought has begun
        self._is_shown = False  # whether text of the present part, thought or content, was returned
        self._is_content = False
        self.has_ended = False

    @property
    def is_inside(self) -> bool:
        return not self._is_content and (self._has_begun or self._thought.is_open)

    def push(self, text: str, final: bool = False) -> tuple[str, str]:
        """Add ``text``, and return the reasoning and the content that are final now. ``final``: ``text`` is the last text."""
        self._text += text
        if not self._is_content and not self._has_begun:
            self._begin(final)
        reasoning = self._read_thought(final) if self._has_begun and not self._is_content else ""
        return reasoning, self._read_content() if self._is_content else ""

    def _begin(self, final: bool) -> None:
        """Find out with what the text begins. If the prompt already has the first mark, the mark may come again."""
        mark, text = self._thought.marks.begin, self._text.lstrip(_WHITE)
        if text.startswith(mark):
            self._has_begun, self._text = True, text[len(mark) :]
        elif final or not mark.startswith(text):
            self._has_begun, self._is_content = self._thought.is_open, not self._thought.is_open
            self._is_shown = self._is_content  # white space before an answer without a thought is part of it

    def _read_thought(self, final: bool) -> str:
        mark = self._thought.marks.end
        if not self._is_shown:
            self._text = self._text.lstrip(_WHITE)
        thought, found, rest = self._text.partition(mark)
        if found:
            self.has_ended = self._is_content = True
            self._text, self._is_shown = rest, False
            return thought.rstrip(_WHITE)
        held = next((size for size in range(len(mark) - 1, 0, -1) if thought.endswith(mark[:size])), 0)
        size = len(thought[: len(thought) - (0 if final else held)].rstrip(_WHITE))
        self._text = thought[size:]
        self._is_shown = self._is_shown or size > 0
        return thought[:size]

    def _read_content(self) -> str:
        content = self._text if self._is_shown else self._text.lstrip(_WHITE)
        self._text, self._is_shown = "", self._is_shown or bool(content)
        return content

    def count(self, tokens: Sequence[int], texts: TokenTexts) -> int:
        """The tokens of a thought that has ended, with its marks. ``tokens``: the tokens of the whole text, or of a part with the
        thought."""
        mark = self._thought.marks.end
        if (token := texts.token(mark)) in tokens:
            return tokens.index(token) + 1
        return bisect_left(
            range(len(tokens)), True, key=lambda size: mark in texts.join(tokens[:size], skip_special_tokens=False)
        )


def with_reasoning(extra: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of an earlier answer, with its reasoning under the name that templates read.

    Newer clients of vLLM and OpenRouter call it ``reasoning``.
    """
    given, other = extra.get("reasoning_content"), extra.get("reasoning")
    return {**extra, "reasoning_content": other} if given is None and other is not None else dict(extra)
