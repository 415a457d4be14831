"""The target's embedding and output layer, shared with a draft head."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F

from suffolk.serving.decoding.engine.model.int8_linear import compressed
from suffolk.serving.decoding.engine.model.target import Target


@dataclass(frozen=True, slots=True)
class SharedEmbeddings:
    """References to modules of the target. They get no gradient and are not in a head's ``state_dict``.

    Attributes:
        embedding: the target's embedding layer.
        output: the target's output layer.
        vocab_size: the number of ids that can be sampled.
    """

    embedding: Any
    output: Any
    vocab_size: int

    @staticmethod
    def of(target: Target) -> SharedEmbeddings:
        model = target.model
        return SharedEmbeddings(model.get_input_embeddings(), model.get_output_embeddings(), target.vocab_size)

    @property
    def hidden_size(self) -> int:
        return int(self.output.weight.shape[1])

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """float[..., hidden], the embeddings of ``tokens``."""
        with torch.no_grad():
            return self.embedding(tokens)  # type: ignore[no-any-return]

    def logits(self, features: torch.Tensor) -> torch.Tensor:
        """float[..., vocab_size], the logits of ``features`` float[..., hidden]. Differentiable with respect to ``features``."""
        features = features.to(self.output.weight.dtype)
        if torch.is_grad_enabled():  # keeps gradients out of the target's weights
            bias = self.output.bias
            found = F.linear(features, self.output.weight.detach(), None if bias is None else bias.detach())
        else:
            found = self.output(features)
        return found[..., : self.vocab_size]

    def compressed(self) -> SharedEmbeddings:
        """A copy with a quantized output layer, if that is faster on this CPU."""
        return replace(self, output=compressed(self.output))
