"""A model whose answers are recorded: what the step loop needs of a target, a cache, passes and samplers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch

from research.simulated_device.device import Device
from suffolk.serving.decoding.engine.model.kv_cache import KVCache
from suffolk.serving.decoding.engine.model.pass_result import PassResult
from suffolk.serving.decoding.engine.model.row_contexts import RowContexts
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout
from suffolk.serving.decoding.engine.sampling.sampler import Sampler


class RecordedCache:
    """The lengths of a cache without keys and values. Not thread-safe."""

    def __init__(self, slots: int, capacity: int) -> None:
        self.slots, self.capacity, self.nbytes = slots, capacity, 0
        self.lengths = np.zeros(slots, np.int64)

    def keep(self, slots: Sequence[int], accepted: Sequence[npt.NDArray[np.int64]], placed: object = None) -> None:
        """See ``KVCache.keep``."""
        for slot, rows in zip(slots, accepted, strict=True):
            self.lengths[slot] += len(rows)

    def clear(self, slot: int) -> None:
        """See ``KVCache.clear``."""
        self.lengths[slot] = 0


class RecordedModel:
    """Stands in for a ``Target``. It has no tokenizer, no grammars and no end tokens: a text ends with its recording."""

    name = "recorded answers"
    tokenizer = None
    context_length = None
    eos_ids: frozenset[int] = frozenset()
    layers = 0

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.device = torch.device("cpu")

    def new_cache(self, slots: int, capacity: int) -> KVCache:
        return cast(KVCache, RecordedCache(slots, capacity))

    def synchronize(self) -> None:
        """Nothing runs beside the host."""

    def match(self, grammar: object) -> None:
        """A recording has no grammar."""

    def ends(self, settings: object) -> frozenset[int]:
        """See ``eos_ids``."""
        return self.eos_ids

    def as_target(self) -> Target:
        """This model as the step loop takes it."""
        return cast(Target, self)


class RecordedPasses:
    """Passes that take the time of a ``Device`` and return no logits, because a ``RecordedSampler`` reads none."""

    has_steps = False

    def __init__(self, device: Device, lengths: npt.NDArray[np.int64], host_seconds: float) -> None:
        """``host_seconds``: time of the host in each step, beside pass and drafts."""
        self._device, self._lengths, self._host_seconds = device, lengths, host_seconds

    def prepare(self, slots: Sequence[int], layouts: Sequence[TreeLayout], wanted: Sequence[int]) -> None:
        self._device.work(self._host_seconds)

    def forward(self, slots: Sequence[int], layouts: Sequence[TreeLayout], wanted: Sequence[int]) -> PassResult:
        rows, context = sum(map(len, layouts)), float(self._lengths[list(slots)].mean())
        self._device.run_pass(rows, len(slots), context)
        return PassResult(torch.empty((sum(wanted), 1)), None)


class RecordedSampler:
    """Samples the tokens of a recorded text. Rows whose drafted tokens are not the text's get any token. Not thread-safe."""

    is_plain_greedy = False

    def __init__(self, text: npt.NDArray[np.int32]) -> None:
        self._text = text.astype(np.int64)

    def sample(self, logits: torch.Tensor, contexts: RowContexts) -> torch.Tensor:
        """See ``Sampler.sample``."""
        begin, depths, paths = len(contexts.tokens), contexts.depths, contexts.paths
        ahead = np.full(paths.shape[1] + 1, -2, np.int64)
        rest = self._text[begin : begin + len(ahead)]
        ahead[: len(rest)] = rest
        beyond = np.arange(paths.shape[1]) >= depths[:, None]
        follows = ((paths == ahead[:-1]) | beyond).all(1) & (ahead[depths] >= 0)
        return torch.from_numpy(np.where(follows, ahead[depths], 0))

    def as_sampler(self) -> Sampler:
        """This sampler as a request takes it."""
        return cast(Any, self)  # type: ignore[no-any-return]
