"""Records a model's plain answers, and drafts along them. The accepted tokens are known without a pass of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from research.one_tree.hindsight_drafter import HindsightDrafter
from suffolk.benchmarks.prompts import Prompt
from suffolk.build_index.progress import part_progress
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer
from suffolk.serving.decoding.drafters.registry import source_name
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.loop.drafter import CacheDrafter, Drafter, FeatureDrafter, LogitsDrafter
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.decoding.replay.read import read_recordings
from suffolk.serving.decoding.replay.recorded_states import RecordedStates
from suffolk.serving.decoding.replay.recorder import Recorder
from suffolk.serving.decoding.replay.recording import Recording
from suffolk.serving.decoding.replay.replayer import SPARE, Replayed, Replayer

SLOTS = 8
Encoded = Sequence[tuple[Prompt, list[int]]]


class AlongRecordings:
    """Runs drafters along the same recordings.

    The drafters may share networks. Every drafter keeps learning from one recording to the next. Not thread-safe.
    """

    def __init__(
        self,
        target: Target,
        drafters: Mapping[str, Drafter],
        nodes: int,
        capacity: int,
        costs: CostModel | None = None,
        reads_cache: bool = True,
    ) -> None:
        """Create the hidden states and caches that the drafters read.

        Args:
            nodes: size of the largest tree.
            capacity: tokens of the longest recording.
            costs: pass costs for the planner, as in service. With None every step drafts, and every node is verified.
            reads_cache: whether a network reads the target's cache.
        """
        self._replayers = {
            name: Replayer(drafter, nodes, costs, _states(target, drafter, capacity + nodes + SPARE, reads_cache))
            for name, drafter in drafters.items()
        }

    def replay(self, recording: Recording) -> dict[str, Any]:
        """Counts of each drafter by name, as plain values for JSON; empty for an answer of one token."""
        if len(recording.generated) < 2:
            return {}
        for replayer in self._replayers.values():
            if isinstance(replayer.drafter, HindsightDrafter):
                replayer.drafter.know(np.concatenate([recording.prompt, recording.generated]))
        return {name: _counts(replayer.replay(recording)) for name, replayer in self._replayers.items()}


class _SharedStates(RecordedStates):
    """States of a drafter that shares networks: it attaches its cache again for each recording."""

    def __init__(self, target: Target, drafter: Drafter, capacity: int) -> None:
        super().__init__(target, drafter, capacity)
        self._drafter = drafter

    def begin(self, tokens: npt.NDArray[np.int32], prompt: int) -> None:
        if isinstance(self._drafter, CacheDrafter):
            self._drafter.attach(self._cache)
        super().begin(tokens, prompt)


def _states(target: Target, drafter: Drafter, capacity: int, reads_cache: bool) -> RecordedStates | None:
    """None if the drafter reads only tokens: then the target needs no pass."""
    reads = (isinstance(drafter, FeatureDrafter) and drafter.layers) or (
        isinstance(drafter, LogitsDrafter) and drafter.reads_logits
    )
    if not reads and not (reads_cache and isinstance(drafter, CacheDrafter)):
        return None
    return _SharedStates(target, drafter, capacity)


def _counts(replayed: Replayed) -> dict[str, Any]:
    stats = replayed.stats
    accepted = stats.drafted.by_source()["accepted_by_source"]
    return {
        "tokens": stats.tokens - 1,
        "passes": stats.steps,
        "verified": stats.nodes_verified,
        "accepted_by_source": {source_name(int(bits)): count for bits, count in accepted.items()},
        "draft_failures": stats.draft_failures.total(),
        "plain_seconds": replayed.plain_seconds,
        "seconds": replayed.seconds,
    }


def recorded_answers(
    path: Path, target: Target, model: str, prompts: Encoded, settings: SamplingSettings
) -> list[Recording]:
    """Return a recording for each of ``prompts``, in order.

    Missing recordings are generated and added to ``path``.

    Raises the errors of ``read_recordings`` and ``Recorder``.
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
