"""Random numbers that depend only on seed and position, and noise that also depends on the token id.

So samples do not depend on drafts.

The counter-based hash is the 64-bit finaliser of SplitMix64, in wrapping int64 arithmetic. So the bits are the same on every
device. The Gumbel-max trick: argmax(log p + g) with independent standard Gumbel g is a sample of p.

Source: Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators (OOPSLA 2014), section 5, with the constants of
Stafford's variant 13.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from suffolk.datastore import _native

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_UNIT = 2.0**-53
_COINS = 0x6A09E667F3BCC908
_DRAWS = 0xBB67AE8584CAA73B
"""Keys of the streams of ``SeededUniforms``: the first 64 fractional bits of the square roots of 2 and 3."""
_LEVEL = 0x3C6EF372FE94F82B
"""Step between the keys of successive levels: the same bits of the square root of 5. The number is odd."""


class SeededNoise:
    """Gumbel noise of one seed over one vocabulary. Not thread-safe.

    Keeps the rows of the last call, because a position is sampled in every step until it is committed.

    Attributes:
        key: the mixed seed, an int64, as ``gumbel_noise`` takes it.
    """

    def __init__(self, seed: int, vocab_size: int, device: torch.device) -> None:
        self._number = seed
        mixed = _mix(torch.tensor(_signed(seed ^ _GOLDEN), dtype=torch.int64))  # on the host, which reads the key
        self.key = int(mixed)
        self._seed = mixed.to(device)
        self._vocab_size = vocab_size
        self._rows: dict[int, torch.Tensor] = {}

    def at(self, positions: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """float64 standard Gumbel noise, for int64 ``positions`` and ``tokens`` of shapes that broadcast."""
        return gumbel_noise(self._seed, positions, tokens)

    def argmax(self, logits: torch.Tensor, temperature: float, positions: npt.NDArray[np.int64]) -> torch.Tensor:
        """int64[n], the argmax of each row of ``logits`` float[n, vocab] / ``temperature`` plus the noise of its position.

        Only for logits of float32 or less on a CPU. Takes a tenth of the time of ``rows``, because most tokens are excluded
        without computing a logarithm (csrc/drafting/noisy_argmax.h).
        """
        return torch.from_numpy(_native.noisy_argmax(logits.float().numpy(), temperature, self._number, positions))

    def rows(self, first: int, count: int) -> torch.Tensor:
        """float64[count, vocab_size], the noise of the positions from ``first`` on."""
        positions = range(first, first + count)
        missing = [position for position in positions if position not in self._rows]
        column = torch.tensor(missing, dtype=torch.int64, device=self._seed.device)[:, None]
        noise = self.at(column, torch.arange(self._vocab_size, device=self._seed.device))
        fresh = self._rows | dict(zip(missing, noise, strict=True))
        self._rows = {position: fresh[position] for position in positions}
        return torch.stack(list(self._rows.values()))


def gumbel_noise(keys: torch.Tensor, positions: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """float64 standard Gumbel noise, for int64 ``keys``, ``positions`` and ``tokens`` of shapes that broadcast."""
    key = _mix(keys + (positions + 1) * _signed(_GOLDEN))
    bits = _shift(_mix((tokens + 1) * _signed(_GOLDEN) + key), 11)
    return bits.to(torch.float64).add_(0.5).mul_(_UNIT).log_().neg_().log_().neg_()


class SeededUniforms:
    """Two uniform numbers in (0, 1) for each position, a coin and a draw.

    The coin accepts or rejects a drafted token, and the draw samples its replacement. They are independent of each other, of
    ``SeededNoise``, and of the uniforms of other levels. Level 0 is the target; a level of a hierarchy
    (``drafters/hierarchy``) has a number above 0. Safe to share between threads.
    """

    def __init__(self, seed: int, device: torch.device, level: int = 0) -> None:
        self._seeds = {
            stream: _mix(torch.tensor(_signed(seed ^ stream), dtype=torch.int64, device=device))
            for stream in (_COINS, _DRAWS)
        }
        if level:
            self._seeds = {stream: _mix(each + _signed(level * _LEVEL)) for stream, each in self._seeds.items()}

    def coins(self, positions: torch.Tensor) -> torch.Tensor:
        """float64, of the shape of ``positions`` (int64): the coin at each position of the sequence."""
        return self._uniform(_COINS, positions)

    def draws(self, positions: torch.Tensor) -> torch.Tensor:
        """float64, of the shape of ``positions`` (int64): the draw at each position of the sequence."""
        return self._uniform(_DRAWS, positions)

    def _uniform(self, stream: int, positions: torch.Tensor) -> torch.Tensor:
        bits = _shift(_mix(self._seeds[stream] + (positions + 1) * _signed(_GOLDEN)), 12)
        # 52 bits plus one half: exact in a float64, so that the result is never 1
        return (bits.to(torch.float64) + 0.5) * (2 * _UNIT)


def _mix(value: torch.Tensor) -> torch.Tensor:
    value = (value ^ _shift(value, 30)).mul_(_signed(_FIRST))
    value = value.bitwise_xor_(_shift(value, 27)).mul_(_signed(_SECOND))
    return value.bitwise_xor_(_shift(value, 31))


def _shift(value: torch.Tensor, bits: int) -> torch.Tensor:
    """Logical right shift. The shift of torch keeps the sign."""
    return (value >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def _signed(value: int) -> int:
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value
