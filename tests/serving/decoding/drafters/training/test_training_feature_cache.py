"""Tests the cache of the target's hidden states."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from suffolk.datastore.errors import Corruption
from suffolk.serving.decoding.drafters.training.feature_cache import FeatureCache


def window_features(number: int, tokens: int = 10) -> torch.Tensor:
    return torch.full((tokens, 1, 8), float(number), dtype=torch.float64)


def test_the_cache_keeps_features_up_to_its_limit(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path / "features", 5000, shard_bytes=1200)
    for number in range(0, 12, 2):
        cache.put({number: window_features(number), number + 1: window_features(number + 1)})
    cache.flush()
    stored = [number for number in range(12) if cache.get(number) is not None]
    assert cache.full
    assert stored == list(range(len(stored)))
    assert 4 <= len(stored) < 8
    files = list((tmp_path / "features").iterdir())
    assert len(files) == cache.shards > 1
    assert sum(file.stat().st_size for file in files) == cache.nbytes <= 5000
    for number in stored:
        found = cache.get(number)
        assert found is not None
        assert torch.equal(found, window_features(number))
    cache.put({50: window_features(50, 1)})
    assert cache.get(50) is None  # also when a smaller one would fit: what is kept does not depend on chance


def test_a_cache_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    first = FeatureCache(tmp_path, 10_000, shard_bytes=100)
    for number in range(3):
        first.put({number: window_features(number)})
    again = FeatureCache(tmp_path, 10_000, shard_bytes=100)
    again.take_over(2, False)
    assert [again.get(number) is not None for number in range(3)] == [True, True, False]
    assert len(list(tmp_path.iterdir())) == again.shards == 2
    again.put({5: window_features(5)})
    assert again.shards == 3
    (tmp_path / "features-00001.safetensors").write_bytes(b"damage")
    with pytest.raises(Corruption, match="features-00001.safetensors: cannot be read"):
        FeatureCache(tmp_path, 10_000).take_over(3, False)
