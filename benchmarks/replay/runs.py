"""Runs the replays of ``suffolk replay``: every drafter with every tree size, in turn."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from suffolk.benchmarks.parts import Stop, keep
from suffolk.benchmarks.replay.report import results
from suffolk.build_index.progress import part_progress
from suffolk.datastore.retriever import Retriever
from suffolk.serving.decoding.drafters.calibration.calibration import Calibration
from suffolk.serving.decoding.drafters.drafter_config import DrafterConfig
from suffolk.serving.decoding.drafters.load import load_drafters, make_drafter
from suffolk.serving.decoding.drafters.retrieval.limits import Limits
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.loop.drafter import Drafter
from suffolk.serving.decoding.replay.recording import Recording
from suffolk.serving.decoding.replay.replayer import SPARE, Replayed, Replayer

if TYPE_CHECKING:
    from suffolk.serving.decoding.engine.model.target import Target

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ReplaySetting:
    """Settings of a replay besides the drafter's name and its largest tree."""

    recordings: Sequence[Recording]
    stores: Sequence[Retriever]
    limits: Limits
    config: DrafterConfig
    target: Target | None
    costs: CostModel | None
    draft_seconds: float | None
    calibration: Calibration | None


def replay_all(setting: ReplaySetting, sizes: Sequence[int], names: Sequence[str]) -> tuple[Rows, Stop | None]:
    """Return the rows of all replays, and the point where Ctrl-C stopped them.

    After Ctrl-C only complete replays count, because results over fewer recordings are not comparable. If the first replay is
    incomplete, its finished recordings count. Raises KeyboardInterrupt if no recording is finished.
    """
    with part_progress(len(sizes) * len(names) * len(setting.recordings), "texts of all replays") as done:
        replays, stop = keep(_replays(setting, sizes, names, done), len(sizes) * len(names), "replays", shown=False)
    _, stop_in_first = replays[0]
    return [row for rows, _ in replays for row in rows], stop_in_first or stop


def _replays(
    setting: ReplaySetting, sizes: Sequence[int], names: Sequence[str], done: Callable[[int], None]
) -> Iterator[tuple[Rows, Stop | None]]:
    """Yield the rows of each replay, and the point where it was stopped. No replay follows a stopped one.

    ``done`` gets the number of texts so far.
    """
    for place, (nodes, name) in enumerate(itertools.product(sizes, names)):
        found, seconds, stop = _replay(setting, name, nodes, place * len(setting.recordings), done)
        if stop is None or place == 0:
            yield results(name, nodes, found, seconds, setting.costs is not None), stop
        if stop is not None:
            raise KeyboardInterrupt


def _replay(
    setting: ReplaySetting, name: str, nodes: int, before: int, done: Callable[[int], None]
) -> tuple[list[Replayed], float, Stop | None]:
    """Replay the recordings, with ``setting.calibration`` or a fresh one; return results, seconds and the stop.

    ``before``: number of texts of earlier replays.
    """
    capacity = max(len(each.prompt) + len(each.generated) for each in setting.recordings) + nodes + SPARE
    calibration = setting.calibration or Calibration()
    models = _load(setting, name, capacity, calibration)
    vocab_size = setting.recordings[0].vocab_size
    drafter = make_drafter(name, vocab_size, list(setting.stores), setting.limits, models, calibration, prefetch=False)
    assert drafter is not None
    try:
        states = None
        if models and setting.target is not None:
            from suffolk.serving.decoding.replay.recorded_states import RecordedStates  # imports torch

            states = RecordedStates(setting.target, drafter, capacity)
        replayer = Replayer(drafter, nodes, setting.costs, states, draft_seconds=setting.draft_seconds)
        texts = _replayed(replayer, setting.recordings, before, done)
        kept, stop = keep(texts, len(setting.recordings), f"texts with {name}, {nodes} nodes", shown=False)
    finally:
        drafter.close()
    _, seconds = kept[-1]
    return [each for each, _ in kept], seconds, stop


def _replayed(
    replayer: Replayer, recordings: Sequence[Recording], before: int, done: Callable[[int], None]
) -> Iterator[tuple[Replayed, float]]:
    """Yield each recording with the seconds so far."""
    begin = time.monotonic()
    for number, recording in enumerate(recordings, before + 1):
        found = replayer.replay(recording)
        yield found, time.monotonic() - begin
        done(number)


def _load(setting: ReplaySetting, name: str, capacity: int, calibration: Calibration) -> list[Drafter]:
    """Load the models that drafter ``name`` needs; none without a target."""
    if setting.target is None:
        return []
    only = None if name == "hybrid" else name
    return load_drafters(setting.target, setting.config, 1, capacity, setting.stores, setting.limits, calibration, only)
