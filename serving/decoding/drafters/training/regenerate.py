"""Generates answers with the target, for a head to learn from."""

from __future__ import annotations

import json
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, count
from pathlib import Path

import numpy as np

from suffolk.datastore.errors import Corruption, InvalidArgument
from suffolk.serving.decoding.drafters.training.documents import (
    TrainingDocument,
    key_of,
    make_document,
    render_question,
)
from suffolk.serving.decoding.drafters.training.options import Regeneration
from suffolk.serving.decoding.drafters.training.rows import Row
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.loop.generation import Generation
from suffolk.serving.decoding.engine.loop.prompt import encode_text
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import MAX_SEED, SamplingSettings

Question = tuple[bytes, list[int]]
"""The key of a prompt, and its tokens."""


def regenerate(
    target: Target,
    rows: Iterable[Row],
    regeneration: Regeneration,
    window: int,
    seed: int,
    file: Path,
    skipped: Counter[str],
    report: Callable[[int], None],
) -> Iterator[TrainingDocument]:
    """Make one document per row: a prompt and the target's answer, together at most ``window`` tokens. Only the
    answer's tokens have a loss.

    A prompt is a conversation without its last answer, or the beginning of a text. Answers are appended to ``file`` in order.
    A resumed run reads them from there, because an answer depends only on its prompt, the settings and the seed. ``report``
    receives the number of answers so far.

    Raises the errors of ``Engine``, and Corruption if ``file`` belongs to other rows.
    """
    questions = _questions(target, rows, regeneration, window, skipped)
    done = count(1)
    for prompt, answer in _read_kept(file):
        question = next(questions, None)
        number = next(done)
        if question is None or question[0].hex() != prompt:
            raise Corruption(f"{file}: its answer {number} is to another prompt; remove {file.parent} and start again")
        report(number)
        yield _document(target, question, answer)
    slots, waiting = regeneration.slots, deque[tuple[Question, Generation]]()
    with Engine(target, None, slots=slots, capacity=window + 1, queue=slots) as engine, file.open("a") as stream:
        for question in chain(questions, [None] * 2 * slots):
            if waiting and (question is None or len(waiting) == 2 * slots):
                report(next(done))
                yield _take(target, waiting, stream.fileno())
            if question is not None:
                settings = _settings(question, regeneration, window, seed)
                waiting.append((question, engine.generate(question[1], settings)))


def _questions(
    target: Target, rows: Iterable[Row], regeneration: Regeneration, window: int, skipped: Counter[str]
) -> Iterator[Question]:
    for row in rows:
        try:
            text = row.text if row.messages is None else render_question(target.tokenizer, row.messages)
        except InvalidArgument as reason:
            skipped[str(reason)] += 1
            continue
        if row.messages is None:
            tokens = encode_text(target, text or "")[: regeneration.prompt_tokens]
        else:
            tokens = list(target.tokenizer(text, add_special_tokens=False)["input_ids"])
        if not tokens:
            skipped["empty prompts"] += 1
        elif len(tokens) >= window:
            skipped[f"prompts that leave no room in a window of {window} tokens"] += 1
        else:
            yield key_of(json.dumps(tokens)), tokens


def _settings(question: Question, regeneration: Regeneration, window: int, seed: int) -> SamplingSettings:
    key, tokens = question
    return SamplingSettings(
        max_new_tokens=min(regeneration.max_new_tokens, window - len(tokens)),
        temperature=regeneration.temperature,
        seed=(int.from_bytes(key[:8], "big") ^ seed) & MAX_SEED,
    )


def _take(target: Target, waiting: deque[tuple[Question, Generation]], descriptor: int) -> TrainingDocument:
    """Wait for the oldest answer, and save it."""
    question, generation = waiting.popleft()
    for _ in generation:
        pass
    line = json.dumps({"prompt": question[0].hex(), "answer": generation.tokens}) + "\n"
    os.write(descriptor, line.encode())
    return _document(target, question, generation.tokens)


def _document(target: Target, question: Question, answer: list[int]) -> TrainingDocument:
    key, tokens = question
    counted = np.arange(len(tokens) + len(answer)) >= len(tokens)
    return make_document(target, tokens + answer, counted, key)


def _read_kept(file: Path) -> list[tuple[str, list[int]]]:
    """The prompt keys and answers of an earlier run. An incomplete last line is removed."""
    if not file.exists():
        return []
    content = file.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        os.truncate(file, len(whole))
    try:
        lines = [json.loads(line) for line in whole.splitlines()]
        return [(str(line["prompt"]), [int(token) for token in line["answer"]]) for line in lines]
    except (ValueError, KeyError, TypeError) as error:
        raise Corruption(f"{file}: damaged ({error}); remove {file.parent} and start again") from error
