"""Trains an EAGLE head of version 1: initial weights, loss, and acceptance by depth (Li et al. 2024, EAGLE)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F

from suffolk.datastore.checks import check_range, number
from suffolk.datastore.errors import Unsupported
from suffolk.serving.decoding.drafters.neural.eagle.config import EagleConfig
from suffolk.serving.decoding.drafters.neural.eagle.layer import causal
from suffolk.serving.decoding.drafters.neural.eagle.model import EagleHead
from suffolk.serving.decoding.drafters.neural.shared_embeddings import SharedEmbeddings
from suffolk.serving.decoding.drafters.training.head import Batch, HeadLoss, LeastSquares
from suffolk.serving.decoding.engine.model.target import Target

DEPTHS = 5
"""Depths at which acceptance is measured."""
_CHUNK = 512
"""Rows whose logits are computed at once."""
_TOKEN_WEIGHT = 0.1
"""Weight of the cross-entropy in the loss."""


class TrainableEagleHead(EagleHead):
    """An EAGLE head as a ``TrainableHead``.

    Attributes:
        noise: width of the uniform noise that training adds to hidden states; 0.2 means -0.1 to 0.1.
    """

    ahead = 2

    def __init__(self, config: EagleConfig, shared: SharedEmbeddings, noise: float = 0.2) -> None:
        """The same as ``EagleHead``. Raises InvalidArgument for ``noise`` outside 0..10."""
        super().__init__(config, shared)
        check_range("noise", number("noise", noise), 0, 10)
        self.noise = noise

    @torch.no_grad()
    def initialize(self, batches: Iterator[Batch]) -> None:
        """Set ``fc`` to the least-squares map from a pair to the next hidden state, and the layer's outputs to zero.

        Acceptance is then about as high as after a thousand training steps from random weights. A head of version 3 is not
        changed.
        """
        if self.config.version != 1:
            return
        squares = LeastSquares()
        for batch in batches:
            known = batch.counted[:, 2:]
            features = self.fuse(batch.features)
            pairs = torch.cat([self.embed(batch.tokens[:, 1:-1]).to(features.dtype), features[:, :-2]], -1)[known]
            ones = pairs.new_ones(len(pairs), 0 if self.fc.bias is None else 1)
            squares.add(torch.cat([pairs, ones], -1), features[:, 1:-1][known])
            if squares.enough:
                break
        found = squares.solve().to(self.fc.weight.dtype)
        width = self.fc.in_features
        self.fc.weight.copy_(found[:, :width])
        if self.fc.bias is not None:
            self.fc.bias.copy_(found[:, width])
        self.layer.self_attn.o_proj.weight.zero_()
        self.layer.mlp.down_proj.weight.zero_()

    def losses(self, batch: Batch) -> HeadLoss:
        """See ``TrainableHead``. Acceptance is measured at depths 1..5, or in training mode at depth 1 only.

        Raises:
            Unsupported: the head is of version 3.
        """
        if self.config.version != 1:
            raise Unsupported("EAGLE-3 heads are run, not trained, by this version; train an EAGLE head of version 1")
        found = self._loss(batch)
        return found if self.training else HeadLoss(found.loss, *self._acceptance(batch))

    def _loss(self, batch: Batch) -> HeadLoss:
        """Smooth L1 of predicted hidden states, plus 0.1 times the cross-entropy of their token distributions.

        Both compare with the target's hidden states. Smooth L1 is a mean over pairs that predict a counted token. The cross-entropy
        is a mean over the pairs at which a draft begins.
        """
        tokens, features = batch.tokens, self.fuse(batch.features)
        inputs = features
        if self.training and self.noise:
            inputs = features + (torch.rand_like(features) - 0.5) * self.noise
        positions = torch.arange(tokens.shape[1] - 1, device=tokens.device)
        predicted = self.step(tokens[:, 1:], inputs[:, :-1], positions, causal)
        counted = batch.counted[:, 2:]
        predicted, true = predicted[:, :-1], features[:, 1:-1]
        distance = F.smooth_l1_loss(predicted[counted], true[counted], reduction="sum") / max(1, true[counted].numel())
        begun = counted & batch.starts[:, :-2]
        with torch.no_grad():
            wanted = self.logits(true[begun]).float().softmax(-1)
        log_probs = self.logits(predicted[begun]).float().log_softmax(-1)
        hits = (log_probs.argmax(-1) == tokens[:, 2:][begun]).sum()
        loss = distance - _TOKEN_WEIGHT * (wanted * log_probs).sum() / max(1, len(log_probs))
        return HeadLoss(loss, hits[None], torch.full_like(hits, len(log_probs))[None])

    @torch.no_grad()
    def _acceptance(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """``HeadLoss.hits`` and ``seen`` of the greedy chains that begin at ``batch.starts``. A chain reads its own states."""
        tokens, size = batch.tokens, batch.tokens.shape[1]
        hits, seen = (torch.zeros(DEPTHS, dtype=torch.float64, device=tokens.device) for _ in range(2))
        chains = max(0, size - 1)
        hidden = self.fuse(batch.features)[:, :chains]
        starts = torch.arange(chains, device=tokens.device)
        alive = batch.starts[:, :chains]
        attend = _OwnChains()
        for depth in range(1, min(DEPTHS, size - 2) + 1):
            read = tokens[:, (starts + depth).clamp(max=size - 1)]
            hidden = self.step(read, hidden, starts + depth - 1, attend)
            tried = (starts + depth + 1).clamp(max=size - 1)
            alive = alive & (starts + depth + 1 < size)
            right = torch.zeros_like(alive)
            parts = [self.logits(part).argmax(-1) for part in torch.split(hidden[alive], _CHUNK)]
            right[alive] = torch.cat(parts) == tokens[:, tried][alive]
            counted = alive & batch.counted[:, tried]
            seen[depth - 1] = counted.sum()
            hits[depth - 1] = (counted & right).sum()
            alive = right
        return hits, seen


def new_head(target: Target, noise: float = 0.2) -> TrainableEagleHead:
    """A head of version 1 with random weights, in the shape of the target's layers and on its device.

    Its weights are in fp64 if the target's are, else in fp32. ``noise``: as in ``TrainableEagleHead``.
    """
    form, shared = target.model.config.get_text_config(decoder=True), SharedEmbeddings.of(target)
    heads = form.num_attention_heads
    rotary = getattr(form, "rope_parameters", None) or {}
    config = EagleConfig(
        version=1,
        hidden_size=shared.hidden_size,
        heads=heads,
        key_value_heads=getattr(form, "num_key_value_heads", None) or heads,
        head_width=getattr(form, "head_dim", None) or shared.hidden_size // heads,
        intermediate_size=getattr(form, "intermediate_size", None) or 4 * shared.hidden_size,
        vocab_size=target.vocab_size,
        layers=(target.layers,),
        rms_eps=getattr(form, "rms_norm_eps", 1e-6),
        rope_theta=float(rotary.get("rope_theta") or 10000.0),
    )
    dtype = torch.float64 if target.dtype == torch.float64 else torch.float32
    return TrainableEagleHead(config, shared, noise).to(target.device, dtype)


class _OwnChains:
    """Attention of chains that begin at every token. The first pass is causal attention over the text.

    Each later pass has one row per chain. The row sees the text up to the chain's beginning, and the chain's earlier rows.
    """

    def __init__(self) -> None:
        self._keys: list[torch.Tensor] = []
        self._values: list[torch.Tensor] = []

    def __call__(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        self._keys.append(key)
        self._values.append(value)
        rows = query.shape[2]
        same = torch.eye(rows, dtype=torch.bool, device=query.device)
        visible = torch.cat([same.new_ones(rows, rows).tril(), *[same] * (len(self._keys) - 1)], 1)
        keys, values = torch.cat(self._keys, 2), torch.cat(self._values, 2)
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=visible, enable_gqa=True)
