"""Records a model's plain answers to prompts in a file. Answers already in the file are not generated again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from suffolk.benchmarks.prompts import Prompt
from suffolk.build_index.progress import part_progress
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.decoding.replay.read import read_recordings
from suffolk.serving.decoding.replay.recorder import Recorder
from suffolk.serving.decoding.replay.recording import Recording

SLOTS = 8
Encoded = Sequence[tuple[Prompt, list[int]]]


def recorded_answers(
    path: Path, target: Target, model: str, prompts: Encoded, settings: SamplingSettings
) -> list[Recording]:
    """Return a recording for each of ``prompts``, in order.

    Missing recordings are generated and added to ``path``.

    Raises as ``read_recordings`` and ``Recorder``.
    """
    known = _by_prompt(path, target, settings)
    missing = [(prompt, ids) for prompt, ids in prompts if _key(prompt, ids) not in known]
    if missing:
        tokenizer = fingerprint(load_tokenizer(model))
        capacity = max(len(ids) for _, ids in missing) + settings.max_new_tokens + 1
        with (
            Recorder(path, target.vocab_size, target.name, tokenizer) as recorder,
            Engine(target, slots=min(SLOTS, len(missing)), capacity=capacity, queue=len(missing)) as engine,
            part_progress(len(missing), "plain answers") as done,
        ):
            running = [(prompt, engine.generate(ids, settings)) for prompt, ids in missing]
            for number, (prompt, generation) in enumerate(running, 1):
                for _ in generation:
                    pass
                recorder.add(generation, prompt.group)
                done(number)
        known = _by_prompt(path, target, settings)
    return [known[_key(prompt, ids)] for prompt, ids in prompts]


def _by_prompt(path: Path, target: Target, settings: SamplingSettings) -> dict[tuple[str, tuple[int, ...]], Recording]:
    """The recordings in ``path`` that ``target`` generated with ``settings``."""
    if not path.exists():
        return {}
    return {
        (each.group, tuple(each.prompt.tolist())): each
        for each in read_recordings([path])
        if each.model == target.name and each.settings == _recorded(settings, target, len(each.prompt))
    }


def _recorded(settings: SamplingSettings, target: Target, prompt: int) -> SamplingSettings:
    """``settings`` as a recording stores them.

    ``max_new_tokens`` is limited to what the context length leaves after ``prompt`` tokens.
    """
    most = settings.max_new_tokens
    if target.context_length is not None:
        most = min(most, target.context_length - prompt)
    return replace(settings, max_new_tokens=max(1, most))


def _key(prompt: Prompt, ids: Sequence[int]) -> tuple[str, tuple[int, ...]]:
    return prompt.group, tuple(ids)
