"""Passes of a target along known texts. They take measured costs, so that other programs on the machine do not change results."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import torch

from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.model.kv_cache import KVCache
from suffolk.serving.decoding.engine.model.pass_result import PassResult
from suffolk.serving.decoding.engine.model.row_contexts import RowContexts
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout
from suffolk.serving.decoding.engine.sampling.sampler import Sampler
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings

_TIMED_ROWS = 16


class CountedPasses:
    """Replaces the passes of a target and its sampling above temperature 0. Not thread-safe.

    A pass takes its cost in ``costs``, and each sampled row its measured time. All other code runs as always, and takes the
    processor time of its thread.

    Attributes:
        texts: int64[n] by slot, the prompt and the answer of the request in it.
        row_seconds: seconds to sample one row.
    """

    def __init__(self, target: Target, costs: CostModel) -> None:
        """``costs``: the corrections of a planner do not change them."""
        self.texts: dict[int, npt.NDArray[np.int64]] = {}
        self.row_seconds = _row_seconds(target)
        self._costs = costs.copy()
        self._read_clock = time.thread_time
        self._counted = 0.0  # seconds of passes, without the processor time that replacing them took

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Inside the block targets generate the known texts, and ``time.perf_counter`` counts their passes."""
        with (
            patch.object(Target, "forward", self._forward),
            patch.object(Sampler, "sample", _known_tokens),
            patch.object(time, "perf_counter", self._now),
        ):
            yield

    def _now(self) -> float:
        return self._read_clock() + self._counted

    def _forward(
        self, cache: KVCache, slots: Sequence[int], layouts: Sequence[TreeLayout], wanted: Sequence[int], *_: object
    ) -> PassResult:
        """A result whose logits float64[wanted rows, 1] are the known next tokens."""
        begin = self._read_clock()
        tokens = np.concatenate([self._following(cache, *each) for each in zip(slots, layouts, wanted, strict=True)])
        rows, context = sum(map(len, layouts)), float(cache.lengths[list(slots)].mean())
        seconds = self._costs.time(rows, len(slots), context) + len(tokens) * self.row_seconds
        self._counted += seconds - (self._read_clock() - begin)
        return PassResult(torch.from_numpy(tokens.astype(np.float64))[:, None], None)

    def _following(self, cache: KVCache, slot: int, layout: TreeLayout, wanted: int) -> npt.NDArray[np.int64]:
        """The known tokens after the last ``wanted`` rows. After the end of the text, its last token is repeated."""
        text = self.texts[slot]
        places = cache.lengths[slot] + layout.depths[len(layout) - wanted :] + 1
        following: npt.NDArray[np.int64] = text[np.minimum(places, len(text) - 1)]
        return following


def _known_tokens(sampler: Sampler, logits: torch.Tensor, contexts: RowContexts) -> torch.Tensor:
    """Stands for ``Sampler.sample``."""
    return logits[:, 0].to(torch.int64)


def _row_seconds(target: Target) -> float:
    """The least of several times to sample a row, each at a new position."""
    sampler = Sampler(SamplingSettings(_TIMED_ROWS, 1.0), target.vocab_size, target.device)
    logits = torch.zeros((1, target.vocab_size), dtype=target.dtype, device=target.device)
    times = []
    for position in range(_TIMED_ROWS):
        contexts = RowContexts.of_text(np.zeros(position + 1, np.int32), 0)
        begin = time.thread_time()
        sampler.sample(logits, contexts).cpu()
        times.append(time.thread_time() - begin)
    return min(times)
