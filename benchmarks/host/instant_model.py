"""A model whose passes are not computed, with logits along given texts, and the clock of a host that runs it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.model.kv_cache import KVCache
from suffolk.serving.decoding.engine.model.pass_result import PassResult
from suffolk.serving.decoding.engine.model.passes import StaticPasses
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout

_SURE = 1000.0
"""The logit of a text's next token; those of others are 0. No noise of a sampler makes up for it."""


def tiny_target(vocab_size: int, tokenizer: Any) -> Target:
    """A random model of one small layer."""
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        bos_token_id=None,
        eos_token_id=None,
    )
    return Target.wrap(LlamaForCausalLM(config), tokenizer, "instant", accelerate=False)


class InstantPasses:
    """Passes in place of the loop's ``Passes``: they load rows as captured passes do. Not thread-safe.

    Attributes:
        texts: int64[slots, longest], the whole text of the request in each slot.
    """

    def __init__(self, target: Target, cache: KVCache, costs: CostModel, clock: HostClock, most_rows: int) -> None:
        """``costs``: the times that passes are given. ``most_rows``: most rows of a pass."""
        self._static, self._cache, self._costs, self._clock = StaticPasses(target, cache, ()), cache, costs, clock
        self.texts = np.zeros((cache.slots, cache.capacity + 1), np.int64)
        self._logits = torch.zeros((most_rows, target.vocab_size))

    def prepare(self, slots: Sequence[int], layouts: Sequence[TreeLayout], wanted: Sequence[int]) -> None:
        """Prepare the static pass."""
        if self._static.fits(layouts, wanted):
            self._static.prepare(slots, layouts)

    def forward(self, slots: Sequence[int], layouts: Sequence[TreeLayout], wanted: Sequence[int]) -> PassResult:
        """As ``Passes.forward``. A row at position p of a text is followed by its token p + 1, whatever its path is."""
        if self._static.fits(layouts, wanted):
            self._static.load(slots, layouts)
        lengths = self._cache.lengths[list(slots)]
        seconds = self._costs.time(sum(map(len, layouts)), len(slots), float(lengths.mean()))
        with self._clock.taking(seconds):
            return PassResult(self._follow(slots, layouts, wanted), None)

    def _follow(self, slots: Sequence[int], layouts: Sequence[TreeLayout], wanted: Sequence[int]) -> torch.Tensor:
        tokens: list[npt.NDArray[np.int64]] = []
        for slot, layout, count in zip(slots, layouts, wanted, strict=True):
            if count:
                tokens.append(self.texts[slot, int(self._cache.lengths[slot]) + layout.depths[-count:] + 1])
        if not tokens:
            return self._logits[:0]
        logits = self._logits[: sum(wanted)].zero_()
        return logits.scatter_(1, torch.from_numpy(np.concatenate(tokens))[:, None], _SURE)


@contextlib.contextmanager
def replaced_clock(now: Callable[[], float]) -> Iterator[None]:
    """Inside the block ``now`` replaces ``time.perf_counter`` in the whole process."""
    with patch.object(time, "perf_counter", now):
        yield


class HostClock:
    """Seconds of processor time of this process. A part can be given another time. Not thread-safe."""

    def __init__(self) -> None:
        self._given = 0.0  # seconds of all given times
        self._offset = 0.0

    def now(self) -> float:
        return time.process_time() + self._offset

    def worked(self) -> float:
        """The time without the parts that were given another time."""
        return self.now() - self._given

    @contextlib.contextmanager
    def taking(self, seconds: float) -> Iterator[None]:
        """Let the work of the block take ``seconds``, however long it takes."""
        begin = time.process_time()
        yield
        self._offset += seconds - (time.process_time() - begin)
        self._given += seconds
