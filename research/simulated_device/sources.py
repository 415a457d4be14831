"""Drafters of a simulation: drafts that take given times, a drafter that knows the answers, and one that changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from research.simulated_device.device import Device, DraftSeconds
from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest, Generated

_SOURCE = 1 << 31
_DEPTH = 20
"""Depth of the drafts of a drafter that knows the answers: the deepest copy from a text."""
Ids = npt.NDArray[np.int32]


def take_time(drafter: Any, seconds: DraftSeconds, device: Device) -> None:
    """Let each call of ``drafter`` take ``seconds`` of the device. For retrieval, a call is one of ``draft``."""
    name = "draft" if hasattr(drafter, "draft") else "propose"
    original, numbers = getattr(drafter, name), count()

    def called(requests: Sequence[DraftRequest]) -> Any:
        device.work(seconds(next(numbers), len(requests)))
        return original(requests)

    setattr(drafter, name, called)  # a wrapper would hide what else the drafter can do


def damage(drafter: Any, damaged: Callable[[DraftRequest], bool], vocab_size: int) -> None:
    """Shift all tokens of the retrieved drafts of requests for which ``damaged`` is true. Scores stay as they are."""
    original = drafter.draft

    def drafted(requests: Sequence[DraftRequest]) -> list[list[DraftTree]]:
        return [
            [replace(tree, tokens=(tree.tokens + 17) % vocab_size) if damaged(request) else tree for tree in trees]
            for request, trees in zip(requests, original(requests), strict=True)
        ]

    drafter.draft = drafted


class KnowingDrafter:
    """Drafts the next tokens of the recorded text, with scores near 1. Not thread-safe."""

    name = "knowing"

    def __init__(self, texts: Callable[[int], Ids]) -> None:
        """``texts``: the whole text of a request, prompt and answer, by the request's number."""
        self._texts = texts

    def propose(self, requests: Sequence[DraftRequest]) -> list[DraftTree]:
        return [self._draft(request) for request in requests]

    def _draft(self, request: DraftRequest) -> DraftTree:
        begin = len(request.tokens)
        ahead = self._texts(request.request_id)[begin : begin + min(_DEPTH, request.max_nodes)]
        size = len(ahead)
        scores = (0.999 ** np.arange(1, size + 1)).astype(np.float32)
        return DraftTree(ahead, np.arange(-1, size - 1, dtype=np.int32), scores, np.full(size, _SOURCE, np.uint32))

    def observe(self, generated: Generated) -> None:
        pass

    def release(self, request_id: int) -> None:
        pass

    def stats(self) -> dict[str, float]:
        return {"calls": 0, "failed": 0}

    def close(self) -> None:
        pass
