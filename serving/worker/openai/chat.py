"""Answers of /v1/chat/completions: the message of the assistant while it is generated, with its reasoning and tool calls."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from suffolk.serving.decoding.engine.loop.step import Step
from suffolk.serving.decoding.engine.sampling.log_probabilities import LogProbability
from suffolk.serving.net.metrics import CallOutcome
from suffolk.serving.worker.openai.answer import FINISH, ChoicesAnswer
from suffolk.serving.worker.openai.bodies import ChatBody
from suffolk.serving.worker.openai.generate_calls import chosen_tools
from suffolk.serving.worker.openai.reasoning import ReasoningMarks, ReasoningParser, Thought, thought_of
from suffolk.serving.worker.openai.text_run import TextRun, TextRuns
from suffolk.serving.worker.openai.token_texts import TokenTexts
from suffolk.serving.worker.openai.tool_calls import CallReader, MoreArguments, ToolCall, ToolCallParser
from suffolk.serving.worker.openai.tool_choice import ToolChoice
from suffolk.serving.worker.openai.tool_format import ToolFormat

Event = str | ToolCall | MoreArguments
"""Content, a call, or more of its arguments."""


class ChatAnswer(ChoicesAnswer[ChatBody]):
    """One or more messages of the assistant."""

    prefix = "chatcmpl"
    kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"

    def __init__(
        self,
        model: str,
        body: ChatBody,
        runs: TextRuns,
        tokens: TokenTexts,
        tool_format: ToolFormat,
        marks: ReasoningMarks | None,
    ) -> None:
        """``tool_format``: the format of the model's tool calls. ``marks``: the marks of its reasoning."""
        super().__init__(model, body, runs, tokens)
        tools, thought = chosen_tools(body), message_thought(marks, body, runs, tokens)
        self._thinks = marks is not None
        # index of a run -> its message
        self._messages = defaultdict[int, ChatMessage](lambda: ChatMessage(tools, tool_format, thought))

    def choice(self, run: TextRun) -> dict[str, Any]:
        message = self._messages[run.index]
        reasoning, content, calls = message.add(run.text, run.finish)
        found: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        found |= self._reasoned(reasoning)
        if calls:
            found |= {"content": content or None, **self._called(calls)}
        return {
            "index": run.index,
            "message": found,
            "logprobs": self._logprobs(run.generation.log_probabilities, run.finish),
            "finish_reason": self._finish(message, run.finish),
        }

    def deltas(self, run: TextRun, step: Step) -> list[dict[str, Any]]:
        choices: list[dict[str, Any]] = []
        if run.index not in self._messages:
            choices.append(_delta(run, {"role": "assistant", "content": ""}))
        logprobs = self._logprobs(step.log_probabilities, step.finish)
        message = self._messages[run.index]
        reasoning, content, calls = message.add(step.text, step.finish)
        added = self._reasoned(reasoning)
        if added or content or logprobs:
            added |= {"content": content} if content or not added else {}
            choices.append(_delta(run, added) | {"logprobs": logprobs})
        if self.body.functions:
            choices += [_delta(run, {"function_call": call["function"]}) for call in calls]
        else:
            choices += [_delta(run, {"tool_calls": [call]}) for call in calls]
        if step.finish:
            choices.append(_delta(run, {}, self._finish(message, step.finish)))
        return choices

    async def whole(self, outcome: CallOutcome) -> dict[str, Any]:
        answer = await super().whole(outcome)
        scores = self.prompt_logprobs(self.runs[0])
        return answer if scores is None else answer | {"prompt_logprobs": scores}

    def empty_delta(self, run: TextRun) -> dict[str, Any]:
        return _delta(run, {})

    def usage(self) -> dict[str, Any]:
        counts = super().usage()
        if self._thinks:
            sizes = [each.reasoning_tokens(self.runs[at], self.tokens) for at, each in self._messages.items()]
            counts["completion_tokens_details"] = {
                **counts.get("completion_tokens_details", {}),
                "reasoning_tokens": sum(sizes),
            }
        return counts

    def _reasoned(self, reasoning: str) -> dict[str, Any]:
        """The field of a message, or of a delta, for its reasoning."""
        return {"reasoning_content": reasoning} if reasoning and self.body.include_reasoning is not False else {}

    def _called(self, calls: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The field of a whole message for its calls."""
        if self.body.functions:
            return {"function_call": calls[0]["function"]}
        return {"tool_calls": [{key: call[key] for key in call if key != "index"} for call in calls]}

    def _finish(self, message: ChatMessage, reason: str) -> str:
        found = message.finish(reason)
        return "function_call" if found == "tool_calls" and self.body.functions else found

    def _logprobs(self, found: Sequence[LogProbability], finish: str) -> dict[str, Any] | None:
        """The log-probabilities of the message. The end-of-text token is omitted."""
        if not self.body.logprobs:
            return None
        as_ids = self.body.return_tokens_as_token_ids is True
        shown = found[:-1] if finish == "eos" else found
        return {"content": [self.tokens.entry(each, as_ids) for each in shown], "refusal": None}


def _delta(run: TextRun, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"index": run.index, "delta": delta, "logprobs": None, "finish_reason": finish}


def message_thought(marks: ReasoningMarks | None, body: ChatBody, runs: TextRuns, tokens: TokenTexts) -> Thought | None:
    """The thought to split off from each answer to ``body``, if there is one."""
    return thought_of(marks, body, tokens, runs[0].generate_call.prompt) if body.splits_reasoning else None


class ChatMessage:
    """Splits the text of one message into reasoning, content and calls. Not thread-safe."""

    def __init__(self, tools: ToolChoice | None, tool_format: ToolFormat, thought: Thought | None = None) -> None:
        """``tools``: the tools that may be called. None: the text has no calls. ``thought``: None for no reasoning."""
        self._thought = ReasoningParser(thought) if thought is not None else None
        self._thought_tokens: int | None = None
        self._reader = CallReader() if tools is not None and tools.is_required else None
        optional = tools if tools is not None and not tools.is_required else None
        self._parser = ToolCallParser(tool_format, optional.functions) if optional is not None else None
        self._tool_format = tool_format
        self._is_named = tools is not None and tools.is_named
        self._is_single = tools is not None and tools.is_single
        self._calls = 0

    def add(self, text: str, finish: str) -> tuple[str, str, list[dict[str, Any]]]:
        """Return the reasoning, content and calls that ``text`` adds.

        ``finish``: the engine's finish reason if it is the last text.
        Calls have the form of OpenAI's chunks: the first part of a call has its name, and all parts have arguments.
        """
        reasoning = ""
        if self._thought is not None:
            reasoning, text = self._thought.push(text, bool(finish))
        events = self._events(text, finish)
        content = "".join(event for event in events if isinstance(event, str))
        return reasoning, content, self._entries([event for event in events if not isinstance(event, str)])

    def reasoning_tokens(self, run: TextRun, texts: TokenTexts) -> int:
        """The tokens of the thought so far. ``run``: the text of this message."""
        if self._thought is None or not (self._thought.has_ended or self._thought.is_inside):
            return 0
        if not self._thought.has_ended:
            return run.stats.tokens
        if self._thought_tokens is None:
            self._thought_tokens = self._thought.count(run.generation.tokens, texts)
        return self._thought_tokens

    def finish(self, reason: str) -> str:
        """OpenAI's finish reason.

        It is ``stop`` if the answer calls the one function that the request names. ``reason``: the engine's finish reason.
        """
        found = FINISH[reason]
        return "tool_calls" if self._calls and found == "stop" and not self._is_named else found

    def _events(self, text: str, finish: str) -> Sequence[Event]:
        if self._reader is not None:
            return [*self._reader.push(text), *(self._reader.finish() if finish else [])]
        if self._parser is not None:
            is_cut = bool(finish) and FINISH[finish] == "length"
            return [*self._parser.push(text), *(self._parser.finish(is_cut) if finish else [])]
        return [text]

    def _entries(self, events: Sequence[ToolCall | MoreArguments]) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = []
        for event in events:
            self._calls += isinstance(event, ToolCall)
            if self._is_single and self._calls > 1:
                continue  # the model was free to generate more calls than the answer may have
            if isinstance(event, ToolCall):
                entries.append(self._entry(event))
            elif entries:
                entries[-1]["function"]["arguments"] += event.text
            else:
                entries.append({"index": self._calls - 1, "function": {"arguments": event.text}})
        return entries

    def _entry(self, call: ToolCall) -> dict[str, Any]:
        number = uuid.uuid4().hex  # Mistral's templates want 9 characters
        name = number[:9] if self._tool_format.name == "mistral" else f"call_{number}"
        function = {"name": call.name, "arguments": call.arguments}
        return {"index": self._calls - 1, "id": name, "type": "function", "function": function}
