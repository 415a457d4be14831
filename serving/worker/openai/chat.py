"""Answers of /v1/chat/completions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from suffolk.serving.decoding.engine.loop.step import Step
from suffolk.serving.decoding.engine.sampling.log_probabilities import LogProbability
from suffolk.serving.net.metrics import CallOutcome
from suffolk.serving.worker.openai.answer import Answer
from suffolk.serving.worker.openai.calls import chosen_tools
from suffolk.serving.worker.openai.chat_message import ChatMessage
from suffolk.serving.worker.openai.schema import ChatBody
from suffolk.serving.worker.openai.text_run import TextRun, TextRuns
from suffolk.serving.worker.openai.token_texts import TokenTexts
from suffolk.serving.worker.openai.tool_choice import first_call
from suffolk.serving.worker.openai.tool_format import ToolFormat


class ChatAnswer(Answer[ChatBody]):
    """One or more messages of the assistant."""

    prefix = "chatcmpl"
    kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"

    def __init__(self, model: str, body: ChatBody, runs: TextRuns, tokens: TokenTexts, form: ToolFormat) -> None:
        """``form``: format of the model's tool calls."""
        super().__init__(model, body, runs, tokens)
        tools = chosen_tools(body)
        self._messages = defaultdict[int, ChatMessage](lambda: ChatMessage(tools, form))  # by index of the run

    def choice(self, run: TextRun) -> dict[str, Any]:
        message = self._messages[run.index]
        content, calls = message.add(run.text, run.finish)
        found: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
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
        content, calls = message.add(step.text, step.finish)
        if content or logprobs:
            choices.append(_delta(run, {"content": content}) | {"logprobs": logprobs})
        if self.body.functions:
            choices += [_delta(run, {"function_call": call}) for call in first_call(calls)]
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

    def _called(self, calls: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The field of a whole message for its calls."""
        if self.body.functions:
            return {"function_call": first_call(calls)[0]}
        return {"tool_calls": [{key: call[key] for key in call if key != "index"} for call in calls]}

    def _finish(self, message: ChatMessage, reason: str) -> str:
        found = message.finish(reason)
        return "function_call" if found == "tool_calls" and self.body.functions else found

    def _logprobs(self, found: Sequence[LogProbability], finish: str) -> dict[str, Any] | None:
        """The log-probabilities of the message. The end-of-text token is omitted."""
        if not self.body.logprobs:
            return None
        as_ids = self.body.return_tokens_as_token_ids is True
        return {"content": [self.tokens.entry(each, as_ids) for each in _shown(found, finish)], "refusal": None}


def _delta(run: TextRun, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"index": run.index, "delta": delta, "logprobs": None, "finish_reason": finish}


def _shown(found: Sequence[LogProbability], finish: str) -> Sequence[LogProbability]:
    return found[:-1] if finish == "eos" else found
