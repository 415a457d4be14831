"""The configuration of an EAGLE head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from suffolk.datastore.checks import listed, whole_number, whole_within
from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.datastore.settings import Within, check_fields

KIND = "eagle"
"""The value of "suffolk" in config.json."""
Positive = Annotated[float, Within(5e-324, 1e6, "above 0 and at most 1000000")]


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Rotary scaling of Llama 3.1. Raises the errors of ``check_fields``.

    Wavelengths above ``original / low`` tokens become ``factor`` times longer. Wavelengths below ``original / high`` tokens stay.
    The scaling is interpolated between both.
    """

    factor: Annotated[float, Within(1, 10000)]
    low: Positive
    high: Positive
    original: Annotated[int, Within(1, 1 << 24)]

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.low < self.high:
            raise InvalidArgument(f"low and high of rope_scaling are {self.low} and {self.high}; they must rise")


@dataclass(frozen=True, slots=True)
class EagleConfig:
    """The configuration of a head.

    Attributes:
        version: 1 for EAGLE and EAGLE-2, which have the same heads; 3 for EAGLE-3.
        hidden_size: width of the head, and of the target's hidden states.
        heads: attention heads.
        key_value_heads: key-value heads; a divisor of ``heads``.
        head_width: width of each attention head; even.
        intermediate_size: width of the feed-forward part.
        vocab_size: the target's vocabulary size.
        layers: the target's layers whose hidden states the head reads (``FeatureDrafter.layers``); one layer for version 1.
        draft_vocab_size: version 3: the number of tokens that the head can draft, 1..vocab_size. Version 1: 0, because it uses
            the target's output layer.
        rms_eps: epsilon of its norms.
        rope_theta, rope_scaling: parameters of its rotary positions.
        fusion_bias: whether ``EagleHead.fc`` has a bias.
        attention_bias: whether the projections to queries, keys and values have a bias.
        norm_before_residual: version 3: whether the residual is the hidden state after its norm.

    Raises:
        InvalidArgument: a value is of the wrong type or out of its range.
    """

    version: int
    hidden_size: Annotated[int, Within(1, 1 << 16)]
    heads: Annotated[int, Within(1, 1 << 10)]
    key_value_heads: Annotated[int, Within(1, 1 << 10)]
    head_width: Annotated[int, Within(1, 1 << 10)]
    intermediate_size: Annotated[int, Within(1, 1 << 20)]
    vocab_size: Annotated[int, Within(1, 1 << 24)]
    layers: tuple[int, ...]
    draft_vocab_size: int = 0
    rms_eps: Annotated[float, Within(5e-324, 1, "above 0 and at most 1")] = 1e-6
    rope_theta: Annotated[float, Within(1.0000001, 1e12, "above 1 and at most 1e12")] = 10000.0
    rope_scaling: RopeScaling | None = None
    fusion_bias: bool = False
    attention_bias: bool = False
    norm_before_residual: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        if self.version not in (1, 3):
            raise InvalidArgument(f"version is {self.version}; it must be 1 (EAGLE and EAGLE-2) or 3 (EAGLE-3)")
        if self.heads % self.key_value_heads:
            raise InvalidArgument(
                Field("key_value_heads"), f" is {self.key_value_heads}; it must divide heads, {self.heads}"
            )
        if self.head_width % 2:
            raise InvalidArgument(Field("head_width"), f" is {self.head_width}; rotary positions need an even one")
        layers = [whole_number("layers", layer) for layer in listed("layers", self.layers, "whole numbers")]
        if not layers or layers != sorted(set(layers)) or layers[0] < 0 or (self.version == 1 and len(layers) > 1):
            raise InvalidArgument(f"layers is {layers}; they must rise from 0 or more, and be one for version 1")
        least, most = (0, 0) if self.version == 1 else (1, self.vocab_size)
        whole_within("draft_vocab_size", self.draft_vocab_size, least, most)
