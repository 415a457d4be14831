"""Settings of the measurement of rollouts. Plain answers to each prompt in each epoch, sampled once and kept in a file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from suffolk.benchmarks.decode.options import DecodingOptions, Epochs
from suffolk.benchmarks.decode.setup import Encoded
from suffolk.datastore.errors import Corruption, InvalidArgument
from suffolk.datastore.settings import check_fields
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings

Answers: TypeAlias = list[list[int]]
METHODS = ("prompt-lookup", "prompt trees", "arctic", "live store", "hybrid")


@dataclass(frozen=True, kw_only=True)
class RolloutOptions(Epochs):
    """Settings of ``suffolk bench rollouts``. Checked when made.

    Attributes:
        decoding: the model, the prompts, and the length of answers. Its temperature and drafters are not used.
        methods: names out of ``METHODS``.
    """

    decoding: DecodingOptions
    methods: tuple[Annotated[str, METHODS], ...]

    def __post_init__(self) -> None:
        check_fields(self)
        if len(set(self.methods)) != len(self.methods):
            raise InvalidArgument(f"methods {', '.join(self.methods)}: one is named twice")


@dataclass(slots=True)
class AnswerFile:
    """Sampled answers, as lines of JSON. The key of an answer holds everything that the answer depends on.

    A run that was stopped samples only the missing answers when it starts again.

    Attributes:
        path: the file; None keeps the answers in memory only.
    """

    path: Path | None
    _rows: dict[str, Answers] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Reads the file if it exists. Raises Corruption: a line is no answer of this class."""
        if self.path is None or not self.path.exists():
            return
        for number, line in enumerate(self.path.read_text().splitlines(), 1):
            try:
                row = json.loads(line)
                self._rows[row["key"]] = [[int(token) for token in answer] for answer in row["answers"]]
            except (ValueError, KeyError, TypeError) as error:
                raise Corruption(f"answers {self.path}, line {number}: {error}; delete the file") from error

    def find(self, key: list[Any], sample: Callable[[], Answers]) -> Answers:
        """Return the answers of ``key``. Missing answers come from ``sample``, and are kept."""
        text = hashlib.sha256(json.dumps(key).encode()).hexdigest()
        if text not in self._rows:
            self._rows[text] = sample()
            if self.path is not None:
                with self.path.open("a") as file:
                    file.write(json.dumps({"key": text, "answers": self._rows[text]}) + "\n")
        return self._rows[text]


def settings_of(options: RolloutOptions, epoch: int, place: int) -> list[SamplingSettings]:
    """Return the settings of each answer to the prompt at ``place``, each with its own seed."""
    first = ((options.decoding.seed * 1000 + epoch) * 100_000 + place) * options.samples
    settings = replace(options.decoding.settings, temperature=options.temperatures[epoch])
    return [replace(settings, seed=first + sample) for sample in range(options.samples)]


def plain_answers(options: RolloutOptions, target: Target, encoded: Encoded, epoch: int, file: AnswerFile) -> Answers:
    """Return the plain answers of ``target`` in ``epoch``, prompt by prompt. ``file`` names it ``options.decoding.model``."""
    answers: Answers = []
    longest = max(len(ids) for _, ids in encoded) + options.decoding.max_new_tokens + 1
    with Engine(target, slots=options.samples, capacity=longest, queue=0) as engine:
        for place, (_, ids) in enumerate(encoded):
            settings = settings_of(options, epoch, place)
            key = [options.decoding.model, str(target.dtype), ids, *map(asdict, settings)]
            answers += file.find(key, partial(_sample, engine, ids, settings))
    return answers


def _sample(engine: Engine, ids: list[int], settings: Sequence[SamplingSettings]) -> Answers:
    running = [engine.generate(ids, each) for each in settings]
    for generation in running:
        list(generation)
    return [generation.tokens for generation in running]
