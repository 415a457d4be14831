"""Answers of /v1/responses: one object, or a stream of events with their names."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

from suffolk.serving.decoding.engine.loop.step import Step
from suffolk.serving.net.metrics import CallOutcome
from suffolk.serving.worker.call import GenerateCall
from suffolk.serving.worker.openai.answer import FINISH, Answer, usage
from suffolk.serving.worker.openai.chat import ChatMessage, message_thought
from suffolk.serving.worker.openai.generate_calls import chosen_tools, read_chat
from suffolk.serving.worker.openai.reasoning import ReasoningMarks
from suffolk.serving.worker.openai.responses_body import ResponsesBody, Text, chat_of
from suffolk.serving.worker.openai.responses_tools import callable_tools, shown_tools
from suffolk.serving.worker.openai.text_run import TextRun, TextRuns
from suffolk.serving.worker.openai.token_texts import TokenTexts
from suffolk.serving.worker.openai.tool_format import ToolFormat
from suffolk.serving.worker.service import DecodeService

Event = dict[str, Any]


def read_response(
    service: DecodeService, body: ResponsesBody, tool_format: ToolFormat, marks: ReasoningMarks | None
) -> list[GenerateCall]:
    """The ``GenerateCall`` that ``body`` requests. ``tool_format``, ``marks``: as in ``read_chat``. Raises InvalidArgument."""
    return read_chat(service, chat_of(body), tool_format, marks)


class ResponsesAnswer(Answer[ResponsesBody]):
    """One response: reasoning, a message, and calls of functions. Each may be missing."""

    names_events = True

    def __init__(
        self,
        model: str,
        body: ResponsesBody,
        runs: TextRuns,
        tokens: TokenTexts,
        tool_format: ToolFormat,
        marks: ReasoningMarks | None,
    ) -> None:
        """``tool_format``: the format of the model's tool calls. ``marks``: the marks of its reasoning."""
        self.body, self.runs, self.tokens = body, runs, tokens
        chat = chat_of(body)
        self._message = ChatMessage(chosen_tools(chat), tool_format, message_thought(marks, chat, runs, tokens))
        self._names = {each.full_name: each.names() for each in callable_tools(body.tools or ())}
        self._output: list[Event] = []
        self._open: Event | None = None  # the item of ``_output`` that is not complete
        self._logprobs: list[Event] = []
        self._with_text = 0  # entries of ``_logprobs`` whose text has come
        self._number = 0
        self._head = _head(model, body)

    async def whole(self, outcome: CallOutcome) -> Event:
        """The response in one piece, once the text has ended."""
        finish = ""
        async for run, step in self.runs.steps(outcome):
            finish = step.finish
            for _ in self._step(run, step):
                pass
        return self._response(finish)

    async def chunks(self, outcome: CallOutcome, interval: float) -> AsyncIterator[list[Event]]:
        """Yield the events of a stream, as lists of events to send together. ``interval``: as in ``StepJoiner``."""
        begun = self._head | {"status": "in_progress", "output": [], "usage": None}
        yield [self._event("response.created", response=begun), self._event("response.in_progress", response=begun)]
        async for run, step in self.runs.steps(outcome, interval):
            events = list(self._step(run, step))
            if step.finish:
                response = self._response(step.finish)
                events.append(self._event(f"response.{response['status']}", response=response))
            if events:
                yield events

    def failure(self, error: Event) -> Event:
        """The event for an error after the start."""
        fields = error["error"]
        return self._event("error", code=fields["code"], message=fields["message"], param=fields["param"])

    def _step(self, run: TextRun, step: Step) -> Iterator[Event]:
        """The events of one step; they also change the output."""
        reasoning, content, calls = self._message.add(step.text, step.finish)
        if self.body.has_logprobs:
            found = step.log_probabilities[:-1] if step.finish == "eos" else step.log_probabilities
            self._logprobs += [self.tokens.entry(each) for each in found]
        if reasoning:
            yield from self._add_reasoning(reasoning)
        if content or (step.finish and not calls and not self._output):
            yield from self._add_text(content)
        for call in calls:
            yield from self._add_call(call)
        if step.finish:
            yield from self._close("incomplete" if FINISH[step.finish] == "length" else "completed")

    def _add_reasoning(self, text: str) -> Iterator[Event]:
        if self._open is None:
            item = {"id": _id("rs"), "type": "reasoning", "summary": []}
            yield from self._begin(item, {"type": "reasoning_text", "text": ""})
        assert self._open is not None
        self._open["content"][0]["text"] += text
        yield self._part("response.reasoning_text.delta", delta=text)

    def _add_text(self, text: str) -> Iterator[Event]:
        if self._open is None or self._open["type"] != "message":
            item = {"id": _id("msg"), "type": "message", "role": "assistant"}
            yield from self._begin(item, {"type": "output_text", "text": "", "annotations": [], "logprobs": []})
        assert self._open is not None
        part = self._open["content"][0]
        logprobs = self._new_logprobs()
        part["text"] += text
        part["logprobs"] += logprobs
        if text:
            yield self._part("response.output_text.delta", delta=text, logprobs=logprobs)

    def _add_call(self, call: Event) -> Iterator[Event]:
        function = call["function"]
        if "id" in call:
            yield from self._close()
            own = {"call_id": call["id"], **self._names[function["name"]], "arguments": "", "status": "in_progress"}
            item = {"id": _id("fc"), "type": "function_call", **own}
            yield self._opened(item, dict(item))
        assert self._open is not None
        self._open["arguments"] += function["arguments"]
        if function["arguments"]:
            yield self._item("response.function_call_arguments.delta", delta=function["arguments"])

    def _new_logprobs(self) -> list[Event]:
        """The entries since the last time, without the entries of the thought."""
        begin = max(self._with_text, self._message.reasoning_tokens(self.runs[0], self.tokens))
        self._with_text = len(self._logprobs)
        return self._logprobs[begin:]

    def _begin(self, item: Event, part: Event) -> Iterator[Event]:
        """Open an item with one part of text."""
        yield from self._close()
        item |= {"status": "in_progress", "content": [part]}
        yield self._opened(item, item | {"content": []})
        yield self._part("response.content_part.added", part=dict(part))

    def _opened(self, item: Event, shown: Event) -> Event:
        self._open = item
        self._output.append(item)
        return self._event("response.output_item.added", output_index=len(self._output) - 1, item=shown)

    def _close(self, status: str = "completed") -> Iterator[Event]:
        """Complete the open item, if there is one."""
        item = self._open
        if item is None:
            return
        item["status"] = status
        if item["type"] == "message":
            part = item["content"][0]
            part["logprobs"] += self._new_logprobs()
            yield self._part("response.output_text.done", text=part["text"], logprobs=part["logprobs"])
            yield self._part("response.content_part.done", part=part)
        elif item["type"] == "reasoning":
            part = item["content"][0]
            yield self._part("response.reasoning_text.done", text=part["text"])
            yield self._part("response.content_part.done", part=part)
        else:
            yield self._item("response.function_call_arguments.done", name=item["name"], arguments=item["arguments"])
        yield self._event("response.output_item.done", output_index=len(self._output) - 1, item=item)
        self._open = None

    def _part(self, kind: str, **fields: Any) -> Event:
        return self._item(kind, content_index=0, **fields)

    def _item(self, kind: str, **fields: Any) -> Event:
        assert self._open is not None
        return self._event(kind, item_id=self._open["id"], output_index=len(self._output) - 1, **fields)

    def _event(self, kind: str, **fields: Any) -> Event:
        self._number += 1
        return {"type": kind, "sequence_number": self._number - 1, **fields}

    def _response(self, finish: str) -> Event:
        is_cut = FINISH[finish] == "length"
        return self._head | {
            "status": "incomplete" if is_cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "completed_at": None if is_cut else int(time.time()),
            "output": self._output,
            "usage": _usage(usage(self.runs), self._message.reasoning_tokens(self.runs[0], self.tokens)),
            **self.metrics(),
        }


def _head(model: str, body: ResponsesBody) -> Event:
    """The fields of a response that are known when it begins."""
    text = body.text or Text()
    return {
        "id": _id("resp"),
        "object": "response",
        "created_at": int(time.time()),
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata or {},
        "model": model,
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": None,
        "reasoning": {"effort": body.reasoning.effort if body.reasoning else None, "summary": None},
        "store": False,
        "temperature": 1.0 if body.temperature is None else body.temperature,
        "text": text.shown(),
        "tool_choice": body.tool_choice or "auto",
        "tools": shown_tools(body.tools or ()),
        "top_logprobs": body.top_logprobs or 0,
        "top_p": 1.0 if body.top_p is None else body.top_p,
        "truncation": "disabled",
    }


def _usage(counts: Event, reasoning: int) -> Event:
    """The counts under the names of responses."""
    return {
        "input_tokens": counts["prompt_tokens"],
        "input_tokens_details": {**counts["prompt_tokens_details"], "cache_write_tokens": 0},
        "output_tokens": counts["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": counts["total_tokens"],
    }


def _id(kind: str) -> str:
    return f"{kind}_{uuid.uuid4().hex}"
