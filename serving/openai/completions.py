"""Answers of /v1/completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from suffolk.serving.engine.loop.step import Step
from suffolk.serving.engine.sampling.log_probabilities import LogProbability
from suffolk.serving.openai.answer import FINISH, Answer
from suffolk.serving.openai.schema import CompletionBody
from suffolk.serving.openai.text_run import TextRun
from suffolk.serving.openai.token_texts import floored


class CompletionAnswer(Answer[CompletionBody]):
    """One or more continued texts."""

    prefix = "cmpl"
    kind = chunk_kind = "text_completion"

    def choice(self, run: TextRun) -> dict[str, Any]:
        logprobs = self._logprobs(run.generation.log_probabilities, run.finish, 0)
        return _choice(run, self._prompt(run) + run.text, logprobs, FINISH[run.finish])

    def deltas(self, run: TextRun, step: Step) -> list[dict[str, Any]]:
        text = (self._prompt(run) if len(run.pieces) == 1 else "") + step.text
        before = sum(map(len, run.pieces[:-1]))
        logprobs = self._logprobs(step.log_probabilities, step.finish, before)
        return [_choice(run, text, logprobs, FINISH.get(step.finish))]

    def empty_delta(self, run: TextRun) -> dict[str, Any]:
        return _choice(run, "", None, None)

    def _prompt(self, run: TextRun) -> str:
        """The prompt if ``echo`` is set, else an empty text."""
        return self.tokens.join(run.call.prompt) if self.body.echo else ""

    def _logprobs(self, found: Sequence[LogProbability], finish: str, offset: int) -> dict[str, Any] | None:
        """The log-probabilities in OpenAI's older form: one list per field.

        ``offset``: characters before the first token.
        """
        if self.body.logprobs is None:
            return None
        found = found[:-1] if finish == "eos" else found
        offsets = []
        for each in found:
            offsets.append(offset)
            offset += len(self.tokens.text(each.token))
        return {
            "tokens": [self.tokens.text(each.token) for each in found],
            "token_logprobs": [floored(each.value) for each in found],
            "top_logprobs": [
                {self.tokens.text(token): floored(value) for token, value in each.alternatives} for each in found
            ],
            "text_offset": offsets,
        }


def _choice(run: TextRun, text: str, logprobs: dict[str, Any] | None, finish: str | None) -> dict[str, Any]:
    return {"index": run.index, "text": text, "logprobs": logprobs, "finish_reason": finish}
