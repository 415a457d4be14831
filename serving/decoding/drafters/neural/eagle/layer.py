"""The decoder layer of an EAGLE head. It is Llama's decoder layer, with rotary positions."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F

from suffolk.serving.decoding.drafters.neural.eagle.config import EagleConfig, RopeScaling

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""Attention of queries [b, heads, q, width] over keys and values [b, key-value heads, q, width].

The result has the queries' shape. The function applies the mask, and adds cached keys and values.
"""


def causal(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Causal attention without a cache."""
    return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)


class EagleLayer(torch.nn.Module):
    """Attention and a gated feed-forward part (Li et al. 2024).

    In version 3 attention reads the normalized embedding and the normalized hidden state, concatenated. In version 1 it reads the
    hidden state without a norm.
    """

    def __init__(self, config: EagleConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self._norm_first = config.norm_before_residual
        self.self_attn = _Attention(config)
        self.mlp = _FeedForward(size, config.intermediate_size)
        self.post_attention_layernorm = torch.nn.RMSNorm(size, config.rms_eps)
        if config.version == 3:
            self.input_layernorm = torch.nn.RMSNorm(size, config.rms_eps)
            self.hidden_norm = torch.nn.RMSNorm(size, config.rms_eps)

    def forward(
        self, hidden: torch.Tensor, embedded: torch.Tensor | None, positions: torch.Tensor, attend: Attend
    ) -> torch.Tensor:
        """float[b, q, hidden], the layer's output. ``hidden`` and ``embedded`` (version 3 only) have the same shape.

        ``positions``: int64[q].
        """
        read = hidden
        if embedded is not None:
            normed = self.hidden_norm(hidden)
            hidden = normed if self._norm_first else hidden
            read = torch.cat([self.input_layernorm(embedded), normed], -1)
        hidden = hidden + self.self_attn(read, positions, attend)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))  # type: ignore[no-any-return]


class _Attention(torch.nn.Module):
    def __init__(self, config: EagleConfig) -> None:
        super().__init__()
        width, bias = config.head_width, config.attention_bias
        inputs = config.hidden_size * (2 if config.version == 3 else 1)
        self._width, self._theta, self._scaling = width, config.rope_theta, config.rope_scaling
        self.q_proj = torch.nn.Linear(inputs, config.heads * width, bias)
        self.k_proj = torch.nn.Linear(inputs, config.key_value_heads * width, bias)
        self.v_proj = torch.nn.Linear(inputs, config.key_value_heads * width, bias)
        self.o_proj = torch.nn.Linear(config.heads * width, config.hidden_size, bias=False)

    def forward(self, rows: torch.Tensor, positions: torch.Tensor, attend: Attend) -> torch.Tensor:
        turned = rotations(positions, self._width, rows.dtype, self._theta, self._scaling)
        query, key, value = (
            part(rows).unflatten(-1, (-1, self._width)).transpose(1, 2)
            for part in (self.q_proj, self.k_proj, self.v_proj)
        )
        seen = attend(rotate(query, *turned), rotate(key, *turned), value)
        return self.o_proj(seen.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class _FeedForward(torch.nn.Module):
    def __init__(self, size: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = torch.nn.Linear(size, inner, bias=False)
        self.up_proj = torch.nn.Linear(size, inner, bias=False)
        self.down_proj = torch.nn.Linear(inner, size, bias=False)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(rows)) * self.up_proj(rows))  # type: ignore[no-any-return]


def rotations(
    positions: torch.Tensor, width: int, dtype: torch.dtype, theta: float, scaling: RopeScaling | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines [q, width] of rotary positions (Su et al. 2021). They rotate the two halves of a head as pairs."""
    kind = torch.promote_types(dtype, torch.float32)
    speeds = theta ** (-torch.arange(0, width, 2, device=positions.device, dtype=kind) / width)
    if scaling is not None:
        turns = scaling.original * speeds / (2 * math.pi)  # full rotations within the original context
        kept = ((turns - scaling.low) / (scaling.high - scaling.low)).clamp(0, 1)
        speeds = speeds * torch.lerp(torch.full_like(kept, 1 / scaling.factor), torch.ones_like(kept), kept)
    angles = positions.to(kind)[:, None] * speeds
    angles = torch.cat([angles, angles], -1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(rows: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """``rows`` [..., q, width], rotated by their positions."""
    first, second = rows.chunk(2, -1)
    return rows * cosines + torch.cat([-second, first], -1) * sines
