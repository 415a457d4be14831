"""The shape of an EAGLE head, and the bounds of its trees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from suffolk.datastore.errors import InvalidArgument, Unsupported
from suffolk.serving.engine.checks import listed, number, whole_number, whole_within

FORMAT = "eagle"
"""The value of "suffolk" in our own config.json."""
_SIZES = {
    "hidden_size": 1 << 16,
    "heads": 1 << 10,
    "key_value_heads": 1 << 10,
    "head_width": 1 << 10,
    "intermediate_size": 1 << 20,
    "vocab_size": 1 << 24,
}
_TREE_BOUNDS = {"top_k": 64, "depth": 64, "nodes": 1024}


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Rotary scaling of Llama 3.1: wavelengths above ``original / low`` tokens are ``factor`` times longer.

    Those below ``original / high`` are unchanged; between them the scaling is interpolated.

    Raises:
        InvalidArgument: a value is no number or out of its range.
    """

    factor: float
    low: float
    high: float
    original: int

    def __post_init__(self) -> None:
        if not 1 <= number("factor", self.factor) <= 1e4:
            raise InvalidArgument(f"factor of rope_scaling is {self.factor}; it must be between 1 and 10000")
        if not 0 < number("low", self.low) < number("high", self.high) <= 1e6:
            raise InvalidArgument(
                f"low and high of rope_scaling are {self.low} and {self.high}; they must rise from above 0"
            )
        whole_within("original of rope_scaling", self.original, 1, 1 << 24)


@dataclass(frozen=True, slots=True)
class EagleConfig:
    """The shape of a head.

    Attributes:
        version: 1 for EAGLE and EAGLE-2, whose heads are the same; 3 for EAGLE-3.
        hidden_size: width of the head and of the target's hidden states; ``intermediate_size``: of its feed-forward part.
        heads, key_value_heads: of attention; the second divides the first. ``head_width``: of each; even.
        vocab_size: the target's.
        layers: of the target whose hidden states it reads, as ``FeatureDrafter.layers``; one for version 1.
        draft_vocab_size: tokens that it can draft, 1..vocab_size for version 3; 0 for version 1, which uses the target's output
            layer.
        rms_eps: of its norms. rope_theta, rope_scaling: of its rotary positions.
        fusion_bias, attention_bias: whether ``fc``, and the projections to queries, keys and values, have a bias.
        norm_before_residual: version 3: whether the residual is taken from the hidden state behind its norm.

    Raises:
        InvalidArgument: a value is of the wrong type or out of its range.
    """

    version: int
    hidden_size: int
    heads: int
    key_value_heads: int
    head_width: int
    intermediate_size: int
    vocab_size: int
    layers: tuple[int, ...]
    draft_vocab_size: int = 0
    rms_eps: float = 1e-6
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling | None = None
    fusion_bias: bool = False
    attention_bias: bool = False
    norm_before_residual: bool = False

    def __post_init__(self) -> None:
        if whole_number("version", self.version) not in (1, 3):
            raise InvalidArgument(f"version is {self.version}; it must be 1 (EAGLE and EAGLE-2) or 3 (EAGLE-3)")
        for name, most in _SIZES.items():
            whole_within(name, getattr(self, name), 1, most)
        if self.heads % self.key_value_heads:
            raise InvalidArgument(f"key_value_heads is {self.key_value_heads}; it must divide heads, {self.heads}")
        if self.head_width % 2:
            raise InvalidArgument(f"head_width is {self.head_width}; rotary positions need an even one")
        layers = [whole_number("layers", layer) for layer in listed("layers", self.layers, "whole numbers")]
        if not layers or layers != sorted(set(layers)) or layers[0] < 0 or (self.version == 1 and len(layers) > 1):
            raise InvalidArgument(f"layers is {layers}; they must rise from 0 or more, and be one for version 1")
        least, most = (0, 0) if self.version == 1 else (1, self.vocab_size)
        whole_within("draft_vocab_size", self.draft_vocab_size, least, most)
        if not 0 < number("rms_eps", self.rms_eps) < 1:
            raise InvalidArgument(f"rms_eps is {self.rms_eps}; it must be between 0 and 1")
        if not 1 < number("rope_theta", self.rope_theta) < 1e12:
            raise InvalidArgument(f"rope_theta is {self.rope_theta}; it must be between 1 and 1e12")
        for name in ("fusion_bias", "attention_bias", "norm_before_residual"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidArgument(f"{name} is {getattr(self, name)!r}; it must be true or false")
        if self.rope_scaling is not None and not isinstance(self.rope_scaling, RopeScaling):
            raise InvalidArgument(f"rope_scaling is {self.rope_scaling!r}; it must be a RopeScaling or None")

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> EagleConfig:
        """Of what ``to_dict`` gave. Raises InvalidArgument: a value is bad, unknown or missing; Unsupported: another format."""
        if values.get("suffolk") != FORMAT:
            raise Unsupported(f'suffolk is {values.get("suffolk")!r} in its config; it must be "{FORMAT}"')
        given = {name: value for name, value in values.items() if name != "suffolk"}
        known = {field.name for field in fields(EagleConfig)}
        if unknown := sorted(set(given) - known):
            raise InvalidArgument(
                f"{unknown[0]} is no option of an EAGLE head; the options are {', '.join(sorted(known))}"
            )
        required = ("version", *_SIZES, "layers")
        if missing := [name for name in required if name not in given]:
            raise InvalidArgument(f"{missing[0]} is missing; an EAGLE head needs {', '.join(required)}")
        given["layers"] = listed("layers", given["layers"], "whole numbers")
        if (scaling := given.get("rope_scaling")) is not None:
            names = [field.name for field in fields(RopeScaling)]
            if not isinstance(scaling, dict) or sorted(scaling) != sorted(names):
                raise InvalidArgument(f"rope_scaling is {scaling!r}; it must have {', '.join(names)}, or be null")
            given["rope_scaling"] = RopeScaling(**scaling)
        return EagleConfig(**given)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"suffolk": FORMAT} | asdict(self) | {"layers": list(self.layers)}


@dataclass(frozen=True, slots=True)
class EagleTreeConfig:
    """Bounds of a tree (EAGLE-2, Li et al. 2024, section 4); it ends earlier where a pass is not worth its cost.

    Attributes:
        top_k: candidates behind a node, and nodes of a level that a pass expands; 1..64. With 1 it is a chain.
        depth: depth of the tree, and the most passes for it; 1..64.
        nodes: the most nodes proposed, the best of all candidates; 1..1024.

    Raises:
        InvalidArgument: a value is no whole number or out of its range.
    """

    top_k: int = 10
    depth: int = 6
    nodes: int = 60

    def __post_init__(self) -> None:
        for name, most in _TREE_BOUNDS.items():
            whole_within(name, getattr(self, name), 1, most)
