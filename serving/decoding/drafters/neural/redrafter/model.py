"""The ReDrafter head drafts from the target's last hidden state and a recurrent state of drafted tokens (ReDrafter, section 2)."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F

from suffolk.datastore.errors import Unsupported
from suffolk.serving.decoding.drafters.neural.redrafter.config import KIND, RedrafterConfig
from suffolk.serving.decoding.drafters.neural.shared_embeddings import SharedEmbeddings
from suffolk.serving.decoding.drafters.neural.weights import write_head
from suffolk.serving.decoding.engine.model.int8_linear import compress
from suffolk.serving.decoding.engine.model.target import Target


class RedrafterHead(torch.nn.Module):
    """Predicts the next drafted token from [h; s_t], the target's last hidden state and the state of the drafted tokens.

        s_t = SiLU(W e(token t) + U s_{t-1} + b)
        x_0 = [h; s_t], projected to ``exit_dim`` if ``exit_dim`` is not twice the hidden size
        x_k = x_{k-1} + SiLU(V_k x_{k-1} + c_k), block by block
        logits = output layer of the last x

    h is the hidden state of the last token that the target has read. Token 1 is the next token. The target has sampled it, but not
    read it. With the initial state ``embedding``, s_0 is the embedding of the last token read. Embeddings are the target's.

    An ``own`` output layer has weights [vocab, exit_dim] and no bias. The target's output layer reads x, projected to the hidden
    size if ``exit_dim`` differs. The target's logit caps and scales are not applied. The target's layers are references, not
    parameters, and not in ``state_dict``.

    Attributes:
        config: its configuration.
        layers: the target's layers whose hidden states it reads: the last one.
        vocab_size: the target's. Logits of higher ids are cut off.

    Thread-safe in evaluation.
    """

    def __init__(
        self,
        config: RedrafterConfig,
        target: Target,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Make a head with random weights on the target's device. ``dtype``: data type of its weights; None for the target's.

        Raises Unsupported if hidden size or vocabulary are not the target's.
        """
        super().__init__()
        self._target = SharedEmbeddings.of(target)
        _require_fit(config, target, self._target)
        self.config = config
        self.layers = (target.layers,)
        self.vocab_size = target.vocab_size
        hidden, width = config.hidden_size, config.exit_dim

        def linear(inputs: int, outputs: int, bias: bool) -> torch.nn.Linear:
            return torch.nn.Linear(inputs, outputs, bias, target.device, dtype or target.dtype)

        if config.recurrent:
            self.token_to_state = linear(hidden, hidden, False)
            self.state_to_state = linear(hidden, hidden, True)
        self.projection = torch.nn.Identity() if width == 2 * hidden else linear(2 * hidden, width, True)
        self.blocks = torch.nn.ModuleList(linear(width, width, True) for _ in range(config.blocks))
        if config.output == "own":
            self.output: torch.nn.Module = linear(width, config.vocab_size, False)
        else:
            self.output = torch.nn.Identity() if width == hidden else linear(width, hidden, False)

    def forward(
        self, features: torch.Tensor, states: torch.Tensor, tokens: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Make one step. Returns the logits [..., vocab] and states [..., hidden] after ``tokens`` int64[...].

        ``features``: float[..., hidden], h. ``states``: [..., hidden], the states before ``tokens``.
        """
        states = self.advance(states, tokens)
        return self.logits(features, states), states

    def initial_state(self, tokens: torch.Tensor) -> torch.Tensor:
        """s_0 [..., hidden]; ``tokens`` int64[...] are the last tokens that the target has read."""
        embedded = self._embed(tokens)
        return embedded if self.config.initial_state == "embedding" else torch.zeros_like(embedded)

    def advance(self, states: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """The states [..., hidden] after each of ``states`` has read one of ``tokens``, int64[...]."""
        embedded = self._embed(tokens)
        if not self.config.recurrent:
            return states + embedded
        return F.silu(self.token_to_state(embedded) + self.state_to_state(states))

    def logits(self, features: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """float[..., vocab], the logits after the tokens that ``states`` have read."""
        x = self.projection(torch.cat([features.to(states.dtype), states], -1))
        for block in self.blocks:
            x = x + F.silu(block(x))
        x = self.output(x)
        return x[..., : self.vocab_size] if self.config.output == "own" else self.target_logits(x)

    def target_logits(self, features: torch.Tensor) -> torch.Tensor:
        """float[..., vocab], the output of the target's output layer. Its weights get no gradient."""
        return self._target.logits(features)

    def compress(self) -> None:
        """Quantize the head's weights, if that is faster on this CPU. The head cannot be trained after that."""
        compress(self)
        if self.config.output != "own":
            self._target = self._target.compressed()

    def embedding_spread(self) -> float:
        """Standard deviation of the target's embedding, from a part of the vocabulary."""
        return max(float(self._target.embedding.weight[:4096].float().std()), 1e-6)

    def target_weight(self) -> torch.Tensor:
        """float[vocab, hidden], the weights of the target's output layer."""
        return self._target.output.weight[: self.vocab_size].detach()  # type: ignore[no-any-return]

    def save(self, folder: Path) -> None:
        """Write config.json and model.safetensors into an existing folder. Raises the errors of ``write_head``."""
        write_head(folder, KIND, self.config, self)

    def _embed(self, tokens: torch.Tensor) -> torch.Tensor:
        return self._target.embed(tokens).to(next(self.parameters()).dtype)


def _require_fit(config: RedrafterConfig, target: Target, shared: SharedEmbeddings) -> None:
    output = shared.output
    if output is None or type(output).__name__ == "Identity":
        raise Unsupported(f"model {target.name} has no output layer; a recurrent head needs a causal LM")
    widths = {"embedding": shared.embedding.weight.shape[1], "output layer": output.weight.shape[1]}
    for name, width in widths.items():
        if width != config.hidden_size:
            raise Unsupported(
                f"the head's hidden size is {config.hidden_size}, but the {name} of model {target.name} has {width}; "
                "use a head trained for this model"
            )
    sizes = {target.vocab_size, output.weight.shape[0]}
    if config.vocab_size not in sizes:
        raise Unsupported(
            f"the head's vocabulary has {config.vocab_size} tokens, model {target.name} has {target.vocab_size}; "
            "use a head trained for this model"
        )
