"""A clock that advances only by the stored cost of a draft model's passes.

Results are free of timing noise, so differences of a percent are visible.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

from suffolk.datastore.errors import InvalidArgument, NotFound
from suffolk.serving.decoding.drafters.neural.draft_model.drafter import DraftModelDrafter
from suffolk.serving.decoding.drafters.retrieval.token_recycling import TokenRecyclingDrafter
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.cost_store import CostKey, stored_costs
from suffolk.serving.decoding.engine.loop.drafter import Drafter
from suffolk.serving.decoding.engine.model.kv_cache import KVCache
from suffolk.serving.decoding.engine.model.pass_result import PassResult
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout

COUNTED = (DraftModelDrafter.name, TokenRecyclingDrafter.name)
"""Networks with countable time: draft models, and token recycling, which takes almost none."""


class CountedTime:
    """Adds up the stored cost of the draft models' passes, in seconds. Not thread-safe."""

    def __init__(self, networks: Sequence[Drafter]) -> None:
        """Count the draft models among ``networks``. All networks must be in ``COUNTED``.

        Raises:
            NotFound: the cost of their passes is not stored.
        """
        models = [network.model for network in networks if isinstance(network, DraftModelDrafter)]
        self._costs = {id(model): _stored(model) for model in models}
        self._seconds = 0.0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Inside the block this clock replaces ``time.perf_counter`` for drafters and planner.

        Searches and merges take no time.
        """
        forward = Target.forward

        def counted(
            model: Target, cache: KVCache, slots: Sequence[int], layouts: Sequence[TreeLayout], *more: Any
        ) -> PassResult:
            found = forward(model, cache, slots, layouts, *more)
            costs = self._costs.get(id(model))
            if costs is not None:
                rows, context = sum(map(len, layouts)), float(cache.lengths[list(slots)].mean())
                self._seconds += costs.time(rows, len(slots), context)
            return found

        with patch.object(Target, "forward", counted), patch.object(time, "perf_counter", lambda: self._seconds):
            yield


def require_counted(networks: Sequence[str]) -> None:
    """Raise InvalidArgument if the time of any of ``networks`` cannot be counted."""
    for name in networks:
        if name not in COUNTED:
            raise InvalidArgument(
                f"--counted: the time of {name} cannot be counted, only the time of {' and '.join(COUNTED)}; leave out "
                f"{name} or --counted"
            )


def _stored(model: Target) -> CostModel:
    costs = stored_costs(CostKey.of(model))
    if costs is None:
        raise NotFound(
            f"--counted: the pass costs of {model.name} are not stored; run 'suffolk profile --model {model.name} "
            f"--as-draft-model' first"
        )
    return costs
