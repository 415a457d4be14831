"""Caches hidden states on disk, in shards of bounded size, up to a limit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from suffolk.datastore.errors import Corruption
from suffolk.datastore.files import write_atomically

SHARD_BYTES = 256 << 20
PATTERN = "features-*.safetensors"


class FeatureCache:
    """The hidden states of windows; the key is a window's number. Not thread-safe.

    They are written when a shard is full, and on ``flush``. States that a killed process did not write are computed again.

    Attributes:
        full: whether the limit is reached. Then nothing more is kept.
        shards: number of written shards.
        nbytes: size of all shards, at most ``limit``.
    """

    def __init__(self, folder: Path, limit: int, shard_bytes: int = SHARD_BYTES) -> None:
        """Make ``folder`` if it is missing. ``take_over`` loads its content."""
        self._folder, self._limit, self._shard_bytes = folder, limit, shard_bytes
        self._places: dict[int, Path] = {}
        self._waiting: dict[int, torch.Tensor] = {}
        self.full = False
        self.shards = self.nbytes = 0
        folder.mkdir(exist_ok=True)

    def take_over(self, shards: int, full: bool) -> None:
        """Use the first ``shards`` shards of the folder, and remove shards that a killed run wrote after its checkpoint.

        Raises Corruption if a shard is missing or damaged.
        """
        kept = [self._path(number) for number in range(shards)]
        for path in self._folder.glob(f"{PATTERN}*"):
            if path not in kept:
                path.unlink()
        for path in kept:
            with _opened(path) as shard:
                self._places |= {int(name): path for name in shard.keys()}  # noqa: SIM118 - it is no dict
            self.nbytes += path.stat().st_size
        self.shards, self.full = shards, full

    def get(self, number: int) -> torch.Tensor | None:
        """float[n, layers, width] on the CPU, the hidden states of a window; None if they are not cached."""
        if number in self._waiting:
            return self._waiting[number]
        path = self._places.get(number)
        if path is None:
            return None
        with _opened(path) as shard:
            found: torch.Tensor = shard.get_tensor(str(number))
            return found

    def put(self, features: Mapping[int, torch.Tensor]) -> None:
        """Keep the hidden states of one pass. If the cache would exceed its limit, these and all later ones are dropped."""
        if self.full or not features:
            return
        added = sum(each.nbytes for each in features.values())
        if self.nbytes + sum(each.nbytes for each in self._waiting.values()) + added > self._limit:
            self.flush()
            self.full = True
            return
        self._waiting |= {number: each.cpu().clone() for number, each in features.items()}
        if sum(each.nbytes for each in self._waiting.values()) >= self._shard_bytes:
            self.flush()

    def flush(self) -> None:
        """Write the pending shard, unless it would exceed the limit."""
        if not self._waiting:
            return
        content = save({str(number): each.contiguous() for number, each in self._waiting.items()})
        path = self._path(self.shards)
        if self.nbytes + len(content) > self._limit:
            self.full = True
        else:
            write_atomically(path, content)
            self._places |= dict.fromkeys(self._waiting, path)
            self.shards += 1
            self.nbytes += len(content)
        self._waiting = {}

    def _path(self, number: int) -> Path:
        return self._folder / f"features-{number:05d}.safetensors"


def _opened(path: Path) -> safe_open:
    try:
        return safe_open(str(path), framework="pt")
    except (OSError, SafetensorError) as error:
        raise Corruption(
            f"{path}: cannot be read ({error}); remove the folder {path.parent.parent} and start the run again"
        ) from error
