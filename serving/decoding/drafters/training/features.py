"""Makes batches of windows with the target's hidden states. These states equal the states in decoding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.drafters.training.corpus import Window
from suffolk.serving.decoding.drafters.training.feature_cache import FeatureCache
from suffolk.serving.decoding.drafters.training.head import Batch
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.tree_layout import chain


class FeatureSource:
    """Batches of windows with the target's hidden states. Not thread-safe.

    Hidden states come from ``Target.forward``, the pass of decoding. The windows of a batch are concatenated in one pass, without
    padding.
    """

    def __init__(
        self,
        target: Target,
        windows: Sequence[Window],
        layers: tuple[int, ...],
        batch: int,
        cache: FeatureCache | None = None,
    ) -> None:
        """Allocate keys and values for ``batch`` windows.

        Args:
            layers: as in ``FeatureDrafter``.
            batch: the most windows in a pass.
            cache: the cache of hidden states; None to compute them each time.

        Raises:
            InvalidArgument: the target does not have these layers.
            ResourceExhausted: out of memory for keys and values.
        """
        if not layers or list(layers) != sorted(set(layers)) or not 0 <= layers[0] <= layers[-1] <= target.layers:
            raise InvalidArgument(
                f"the head wants hidden states of layers {list(layers)}; model {target.name} has 0..{target.layers}, each once"
            )
        self._target, self._windows, self._layers, self.cache = target, windows, layers, cache
        self._keys = target.new_cache(batch, max(len(window.tokens) for window in windows))

    def batch(self, numbers: Sequence[int]) -> Batch:
        """The windows with these numbers on the target's device, with features in the target's dtype.

        Padding does not count. Raises ResourceExhausted if memory is out.
        """
        windows = [self._windows[number] for number in numbers]
        shape = len(windows), max(len(window.tokens) for window in windows)
        tokens, counted = np.zeros(shape, np.int64), np.zeros(shape, np.bool_)
        for row, window in enumerate(windows):
            tokens[row, : len(window.tokens)] = window.tokens
            counted[row, : len(window.tokens)] = window.counted
        found = self._find(numbers)
        width = next(iter(found.values())).shape[-1]
        device = self._target.device
        features = torch.zeros((*shape, len(self._layers), width), dtype=self._target.dtype, device=device)
        for row, number in enumerate(numbers):
            features[row, : len(windows[row].tokens)] = found[number].to(device)
        return Batch(torch.from_numpy(tokens).to(device), torch.from_numpy(counted).to(device), features)

    def _find(self, numbers: Sequence[int]) -> Mapping[int, torch.Tensor]:
        """float[n, layers, width] of each window, from the cache or from one pass."""
        kept = {} if self.cache is None else {number: self.cache.get(number) for number in numbers}
        found = {number: each for number, each in kept.items() if each is not None}
        missing = [number for number in dict.fromkeys(numbers) if number not in found]
        if missing:
            computed = self._compute(missing)
            if self.cache is not None:
                self.cache.put(computed)
            found |= computed
        return found

    def _compute(self, numbers: Sequence[int]) -> dict[int, torch.Tensor]:
        layouts = [chain(self._windows[number].tokens.astype(np.int64)) for number in numbers]
        slots = range(len(numbers))
        features = self._target.forward(self._keys, slots, layouts, [0] * len(numbers), self._layers).features
        assert features is not None  # layers were requested
        parts = torch.split(features, [len(layout) for layout in layouts])
        return dict(zip(numbers, parts, strict=True))
