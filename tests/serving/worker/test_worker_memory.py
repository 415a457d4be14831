"""A worker checks at its start that all KV caches fit into memory."""

from __future__ import annotations

import pytest

from suffolk.cli.worker import require_room
from suffolk.datastore.errors import ResourceExhausted
from suffolk.serving.decoding.drafters.hierarchy.drafter import HierarchyDrafter
from suffolk.serving.decoding.drafters.neural.draft_model.drafter import DraftModelDrafter
from suffolk.serving.decoding.engine.model import memory
from suffolk.serving.decoding.engine.model.target import Target
from tests.support import eagle_heads
from tests.support.drafters import Free, MadeUpDrafter, tree
from tests.support.hierarchies import level
from tests.support.tiny_models import VOCAB, tiny_model


def test_the_caches_of_drafters_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: only the target's cache used to be counted.

    The drafters' caches then grew until the system killed the worker.
    """
    target = Target.wrap(tiny_model())
    own = memory.cache_bytes(target.model.config, 2 * 160, target.dtype.itemsize)
    found = [
        DraftModelDrafter(target, VOCAB, 2, 160, costs=Free()),
        eagle_heads.drafter_of(eagle_heads.random_head(), slots=2, capacity=160),
        HierarchyDrafter([level(target, 2, slots=2), level(target, 4, slots=2)], VOCAB, slots=2),
    ]
    assert 2 * found[0].cache_bytes == found[2].cache_bytes > 0
    models = [*found, MadeUpDrafter(lambda request: tree([], []))]
    needed = own + sum(each.cache_bytes for each in found)
    monkeypatch.setattr(memory, "available_memory", lambda device: needed)
    require_room(target, 2, 160, models)
    monkeypatch.setattr(memory, "available_memory", lambda device: needed - 1)
    require_room(target, 2, 160)
    with pytest.raises(ResourceExhausted, match="--slots 2 x --capacity 160: the caches need .* lower one of them"):
        require_room(target, 2, 160, models)
