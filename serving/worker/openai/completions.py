"""Answers of /v1/completions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from suffolk.serving.decoding.engine.loop.step import Step
from suffolk.serving.decoding.engine.loop.text_stream import TextStream
from suffolk.serving.decoding.engine.sampling.log_probabilities import LogProbability
from suffolk.serving.worker.openai.answer import FINISH, ChoicesAnswer
from suffolk.serving.worker.openai.bodies import CompletionBody
from suffolk.serving.worker.openai.sampling_fields import drops_answer
from suffolk.serving.worker.openai.text_run import TextRun, TextRuns
from suffolk.serving.worker.openai.token_texts import TokenTexts, floored


class CompletionAnswer(ChoicesAnswer[CompletionBody]):
    """One or more continued texts."""

    prefix = "cmpl"
    kind = chunk_kind = "text_completion"

    def __init__(self, model: str, body: CompletionBody, runs: TextRuns, tokens: TokenTexts) -> None:
        super().__init__(model, body, runs, tokens)
        self._drops = drops_answer(body)
        self._skips_special = body.skip_special_tokens is not False
        # index of a run -> its offsets
        self._offsets = defaultdict[int, _Offsets](lambda: _Offsets(tokens.stream(self._skips_special)))
        self._prompts: dict[bytes, str] = {}  # texts by ids: the choices of a prompt share it

    def choice(self, run: TextRun) -> dict[str, Any]:
        text = self._echoed(run) + ("" if self._drops else run.text)
        logprobs = self._logprobs(run, run.generation.log_probabilities, run.finish, is_first=True, size=len(text))
        choice = _choice(run, text, logprobs, self._finish(run.finish))
        scores = self.prompt_logprobs(run)
        return choice if scores is None else choice | {"prompt_logprobs": scores}

    def deltas(self, run: TextRun, step: Step) -> list[dict[str, Any]]:
        is_first = len(run.pieces) == 1
        text = (self._echoed(run) if is_first else "") + ("" if self._drops else step.text)
        size = len(self._echoed(run)) + len(run.text) if step.finish else None
        logprobs = self._logprobs(run, step.log_probabilities, step.finish, is_first, size)
        return [_choice(run, text, logprobs, self._finish(step.finish) if step.finish else None)]

    def empty_delta(self, run: TextRun) -> dict[str, Any]:
        return _choice(run, "", None, None)

    def usage(self) -> dict[str, Any]:
        counts = super().usage()
        return counts | {"completion_tokens": 0, "total_tokens": counts["prompt_tokens"]} if self._drops else counts

    def _finish(self, reason: str) -> str:
        return "length" if self._drops else FINISH[reason]

    def _echoed(self, run: TextRun) -> str:
        """The prompt if ``echo`` is set, else an empty text."""
        return self._prompt(run) if self.body.echo else ""

    def _prompt(self, run: TextRun) -> str:
        ids = np.asarray(run.generate_call.prompt, np.int32)
        if (key := ids.tobytes()) not in self._prompts:
            self._prompts[key] = self.tokens.join(ids, self._skips_special)
        return self._prompts[key]

    def _logprobs(
        self, run: TextRun, found: Sequence[LogProbability], finish: str, is_first: bool, size: int | None
    ) -> dict[str, Any] | None:
        """The log-probabilities in OpenAI's older form: one list per field. If the prompt is echoed, its values are first.

        ``size``: characters of the whole text; None while the size is not known.
        """
        if self.body.logprobs is None:
            return None
        as_ids = self.body.return_tokens_as_token_ids is True
        shown = [] if self._drops else found[:-1] if finish == "eos" else found
        first: list[int] = []  # the prompt's first token, which has no log-probability
        if self.body.echo and is_first:
            first = [int(run.generate_call.prompt[0])]
            shown = [*run.generation.prompt_log_probabilities, *shown]
        start = 0 if self.body.echo else len(self._prompt(run))
        tokens, none = [*first, *(each.token for each in shown)], [None] * len(first)
        offsets = self._offsets[run.index].add(tokens)
        return {
            "tokens": [self.tokens.name(token, as_ids) for token in tokens],
            "token_logprobs": none + [floored(each.value) for each in shown],
            "top_logprobs": none + [self.tokens.top(each, as_ids) for each in shown],
            "text_offset": [start + (offset if size is None else min(offset, size)) for offset in offsets],
        }


class _Offsets:
    """The offset of each token's text. Tokens that are parts of one character share its offset."""

    def __init__(self, stream: TextStream | None) -> None:
        self._stream, self._next = stream, 0

    def add(self, tokens: Sequence[int]) -> list[int]:
        found = []
        for token in tokens:
            found.append(self._next)
            if self._stream is not None:
                self._next += sum(len(text) for text, _ in self._stream.push(token))
        return found


def _choice(run: TextRun, text: str, logprobs: dict[str, Any] | None, finish: str | None) -> dict[str, Any]:
    return {"index": run.index, "text": text, "logprobs": logprobs, "finish_reason": finish}
