"""Drafts along a model's own recorded answers. The accepted tokens are known without a pass of the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from suffolk.benchmarks.hybrid.hindsight_drafter import HindsightDrafter
from suffolk.serving.decoding.drafters.registry import source_name
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.loop.drafter import CacheDrafter, Drafter, FeatureDrafter, LogitsDrafter
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.replay.recorded_states import RecordedStates
from suffolk.serving.decoding.replay.recording import Recording
from suffolk.serving.decoding.replay.replayer import SPARE, Replayed, Replayer


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
