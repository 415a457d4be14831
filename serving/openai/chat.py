"""Answers of /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from suffolk.serving.engine.loop.step import Step
from suffolk.serving.engine.sampling.log_probabilities import LogProbability
from suffolk.serving.openai.answer import FINISH, Answer
from suffolk.serving.openai.schema import ChatBody
from suffolk.serving.openai.text_run import TextRun


class ChatAnswer(Answer[ChatBody]):
    """One or more messages of the assistant."""

    prefix = "chatcmpl"
    kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"

    def choice(self, run: TextRun) -> dict[str, Any]:
        return {
            "index": run.index,
            "message": {"role": "assistant", "content": run.text, "refusal": None},
            "logprobs": self._logprobs(run.generation.log_probabilities, run.finish),
            "finish_reason": FINISH[run.finish],
        }

    def deltas(self, run: TextRun, step: Step) -> list[dict[str, Any]]:
        choices: list[dict[str, Any]] = []
        if len(run.pieces) == 1:
            choices.append(_delta(run, {"role": "assistant", "content": ""}))
        logprobs = self._logprobs(step.log_probabilities, step.finish)
        if step.text or logprobs:
            choices.append(_delta(run, {"content": step.text}) | {"logprobs": logprobs})
        if step.finish:
            choices.append(_delta(run, {}, FINISH[step.finish]))
        return choices

    def _logprobs(self, found: Sequence[LogProbability], finish: str) -> dict[str, Any] | None:
        """Without that of the end-of-text token, which is no part of the message."""
        if not self.body.logprobs:
            return None
        return {"content": [self.tokens.entry(each) for each in _shown(found, finish)], "refusal": None}


def _delta(run: TextRun, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"index": run.index, "delta": delta, "logprobs": None, "finish_reason": finish}


def _shown(found: Sequence[LogProbability], finish: str) -> Sequence[LogProbability]:
    return found[:-1] if finish == "eos" else found
