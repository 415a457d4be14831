"""The EAGLE head predicts the next hidden state from a hidden state and the next token (Li et al. 2024)."""

from __future__ import annotations

from pathlib import Path

import torch

from suffolk.datastore.errors import Unsupported
from suffolk.serving.decoding.drafters.neural.eagle.config import KIND, EagleConfig
from suffolk.serving.decoding.drafters.neural.eagle.layer import Attend, EagleLayer
from suffolk.serving.decoding.drafters.neural.shared_embeddings import SharedEmbeddings
from suffolk.serving.decoding.drafters.neural.weights import write_head
from suffolk.serving.decoding.engine.model.int8_linear import compress


class EagleHead(torch.nn.Module):
    """One decoder layer over pairs of a hidden state and the token one step ahead of it.

    Pair i consists of token i + 1 and of the hidden state of token i, which has read tokens 0..i. The pair's position is i. Its
    output is the state that predicts token i + 2. If token i was drafted, its hidden state is the output of pair i - 1.

    In version 1, states predict the target's hidden states, and the target's output layer reads them. In version 3, the head has
    its own norm and output layer, over a part of the vocabulary.

    Attributes:
        config: its configuration.
        layers: the target's layers whose hidden states it reads.
        d2t: version 3: int64[draft_vocab_size], the target's id minus the draft id.
        embed_tokens: version 3: float[vocab, hidden], its own embedding; None to use the target's.
    """

    d2t: torch.Tensor
    embed_tokens: torch.Tensor | None

    def __init__(self, config: EagleConfig, shared: SharedEmbeddings) -> None:
        """Make a head with random weights, in fp32 on the CPU.

        Raises:
            Unsupported: ``config`` is for a target of another width or vocabulary.
        """
        super().__init__()
        if (config.hidden_size, config.vocab_size) != (shared.hidden_size, shared.vocab_size):
            raise Unsupported(
                f"it has hidden states of {config.hidden_size} and {config.vocab_size} tokens, the target has "
                f"{shared.hidden_size} and {shared.vocab_size}; use a head that was trained for this target"
            )
        self.config, self.layers = config, config.layers
        self._shared = shared
        size = config.hidden_size
        self.layer = EagleLayer(config)
        self.register_buffer("embed_tokens", None)
        if config.version == 1:
            self.fc = torch.nn.Linear(2 * size, size, config.fusion_bias)
        else:
            self.fc = torch.nn.Linear(len(config.layers) * size, size, config.fusion_bias)
            self.norm = torch.nn.RMSNorm(size, config.rms_eps)
            self.lm_head = torch.nn.Linear(size, config.draft_vocab_size, bias=False)
            self.register_buffer("d2t", torch.zeros(config.draft_vocab_size, dtype=torch.int64))

    def fuse(self, features: torch.Tensor) -> torch.Tensor:
        """float[..., hidden], the input for ``step`` from the target's hidden states float[..., layers, hidden]."""
        features = features.to(self.fc.weight.dtype)
        if self.config.version == 1:
            return features[..., 0, :]
        return self.fc(features.flatten(-2))  # type: ignore[no-any-return]

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """float[..., hidden], the embeddings of ``tokens``, by the head's own embedding or the target's."""
        return self._shared.embed(tokens) if self.embed_tokens is None else self.embed_tokens[tokens]

    def step(self, tokens: torch.Tensor, hidden: torch.Tensor, positions: torch.Tensor, attend: Attend) -> torch.Tensor:
        """The states float[b, q, hidden] of pairs.

        Args:
            tokens: int64[b, q].
            hidden: float[b, q, hidden], from ``fuse``, or states of earlier pairs.
            positions: int64[q].
            attend: attention of the rows, with its mask.
        """
        embedded = self.embed(tokens).to(hidden.dtype)
        if self.config.version == 1:
            hidden = self.fc(torch.cat([embedded, hidden], -1))
            return self.layer(hidden, None, positions, attend)  # type: ignore[no-any-return]
        return self.layer(hidden, embedded, positions, attend)  # type: ignore[no-any-return]

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """float[..., vocab_size], logits over the target's vocabulary; -inf for tokens that the head cannot draft."""
        if self.config.version == 1:
            return self._shared.logits(states)
        drafted = self.draft_logits(states)
        spread = drafted.new_full((*drafted.shape[:-1], self.config.vocab_size), -torch.inf)
        return spread.index_copy(-1, self.target_ids(), drafted)

    def draft_logits(self, states: torch.Tensor) -> torch.Tensor:
        """Version 3: float[..., draft_vocab_size], logits by draft ids."""
        return self.lm_head(self.norm(states))  # type: ignore[no-any-return]

    def target_ids(self) -> torch.Tensor:
        """int64[draft_vocab_size], the target's id of each draft id."""
        return torch.arange(len(self.d2t), device=self.d2t.device) + self.d2t

    def compress(self) -> None:
        """Quantize the head's weights, if that is faster on this CPU. The head cannot be trained after that."""
        compress(self)
        if self.config.version == 1:
            self._shared = self._shared.compressed()

    def save(self, folder: Path) -> None:
        """Write config.json and model.safetensors into an existing folder. Raises the errors of ``write_head``."""
        write_head(folder, KIND, self.config, self)
