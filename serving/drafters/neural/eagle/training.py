"""Training of an EAGLE head: its loss, its first weights, and the acceptance of its drafts (Li et al. 2024)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F

from suffolk.datastore.errors import InvalidArgument, Unsupported
from suffolk.serving.drafters.neural.eagle.config import EagleConfig
from suffolk.serving.drafters.neural.eagle.model import EagleHead, causal
from suffolk.serving.drafters.neural.eagle.shared_embeddings import SharedEmbeddings
from suffolk.serving.drafters.training.head import Batch, HeadLoss
from suffolk.serving.drafters.training.least_squares import LeastSquares
from suffolk.serving.engine.loop.checks import number
from suffolk.serving.engine.model.target import Target

DEPTHS = 5
_TOKEN_WEIGHT = 0.1
_CHUNK = 512
"""Rows whose logits are computed at once."""


class TrainableEagleHead(EagleHead):
    """An EAGLE head as a ``TrainableHead``.

    Attributes:
        noise: width of the uniform noise on the target's hidden states in training mode; 0.2 is -0.1 to 0.1.
    """

    def __init__(self, config: EagleConfig, ends: SharedEmbeddings, noise: float = 0.2) -> None:
        """Random weights, in fp32 on the CPU.

        Raises:
            InvalidArgument: ``noise`` is out of 0..10.
            Unsupported: as ``EagleHead``.
        """
        if not 0 <= number("noise", noise) <= 10:
            raise InvalidArgument(f"noise is {noise}; it must be between 0 and 10")
        super().__init__(config, ends)
        self.noise = noise

    def start(self, batches: Iterator[Batch]) -> None:
        """Begin with the best linear map from a pair to the next hidden state.

        Its acceptance is about that of a thousand training steps from random weights.
        """
        if self.config.version == 1:
            start_linear(self, batches)

    def losses(self, batch: Batch) -> HeadLoss:
        """As ``TrainableHead.losses``: acceptance for depths 1..5, or in training mode for the first alone.

        Raises:
            Unsupported: the head is of version 3.
        """
        if self.config.version != 1:
            raise Unsupported("EAGLE-3 heads are run, not trained, by this version; train an EAGLE head of version 1")
        found = head_loss(self, batch)
        return found if self.training else HeadLoss(found.loss, *acceptance(self, batch))


def new_head(target: Target, noise: float = 0.2) -> TrainableEagleHead:
    """A head of version 1 with random weights, shaped as the target's layers, on the target's device.

    It is in fp64 if the target is, else in fp32. ``noise``: as in ``TrainableEagleHead``.
    """
    form, ends = target.model.config.get_text_config(decoder=True), SharedEmbeddings.of(target)
    heads = form.num_attention_heads
    rotary = getattr(form, "rope_parameters", None) or {}
    config = EagleConfig(
        version=1,
        hidden_size=ends.hidden_size,
        heads=heads,
        key_value_heads=getattr(form, "num_key_value_heads", None) or heads,
        head_width=getattr(form, "head_dim", None) or ends.hidden_size // heads,
        intermediate_size=getattr(form, "intermediate_size", None) or 4 * ends.hidden_size,
        vocab_size=target.vocab_size,
        layers=(target.layers,),
        rms_eps=getattr(form, "rms_norm_eps", 1e-6),
        rope_theta=float(rotary.get("rope_theta") or 10000.0),
    )
    dtype = torch.float64 if target.dtype == torch.float64 else torch.float32
    return TrainableEagleHead(config, ends, noise).to(target.device, dtype)


def head_loss(head: TrainableEagleHead, batch: Batch) -> HeadLoss:
    """Smooth L1 between predicted and true hidden states, plus 0.1 times a cross-entropy (Li et al. 2024, training of EAGLE).

    The cross-entropy compares the output layer's distributions of either state. Means are over the pairs whose outcome predicts a
    counted token; for the cross-entropy, over those of them where a draft begins. In training mode the inputs get the head's noise.
    Acceptance is that of the first depth, which alone has logits.
    """
    tokens, features = batch.tokens, head.fuse(batch.features)
    given = features
    if head.training and head.noise:
        given = features + (torch.rand_like(features) - 0.5) * head.noise
    positions = torch.arange(tokens.shape[1] - 1, device=tokens.device)
    predicted = head.step(tokens[:, 1:], given[:, :-1], positions, causal)
    counted = batch.counted[:, 2:]
    predicted, true = predicted[:, :-1], features[:, 1:-1]
    distance = F.smooth_l1_loss(predicted[counted], true[counted], reduction="sum") / max(1, true[counted].numel())
    begun = counted & batch.starts[:, :-2]
    with torch.no_grad():
        distribution = head.logits(true[begun]).float().softmax(-1)
    likely = head.logits(predicted[begun]).float().log_softmax(-1)
    hits = (likely.argmax(-1) == tokens[:, 2:][begun]).sum()
    loss = distance - _TOKEN_WEIGHT * (distribution * likely).sum() / max(1, len(likely))
    return HeadLoss(loss, hits[None], torch.full_like(hits, len(likely))[None])


@torch.no_grad()
def start_linear(head: EagleHead, batches: Iterator[Batch]) -> None:
    """Set ``fc`` of a head of version 1 to the least-squares map over counted tokens; its layer adds nothing at first."""
    squares = LeastSquares()
    for batch in batches:
        known = batch.counted[:, 2:]
        features = head.fuse(batch.features)
        pairs = torch.cat([head.embed(batch.tokens[:, 1:-1]).to(features.dtype), features[:, :-2]], -1)[known]
        ones = pairs.new_ones(len(pairs), 0 if head.fc.bias is None else 1)
        squares.add(torch.cat([pairs, ones], -1), features[:, 1:-1][known])
        if squares.enough:
            break
    found = squares.solve().to(head.fc.weight.dtype)
    width = head.fc.in_features
    head.fc.weight.copy_(found[:, :width])
    if head.fc.bias is not None:
        head.fc.bias.copy_(found[:, width])
    head.layer.self_attn.o_proj.weight.zero_()
    head.layer.mlp.down_proj.weight.zero_()


@torch.no_grad()
def acceptance(head: EagleHead, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """``HeadLoss.hits`` and ``seen`` of greedy chains behind the pairs where drafts begin, each fed with its own states."""
    tokens, size = batch.tokens, batch.tokens.shape[1]
    hits, seen = (torch.zeros(DEPTHS, dtype=torch.float64, device=tokens.device) for _ in range(2))
    chains = max(0, size - 1)
    hidden = head.fuse(batch.features)[:, :chains]
    starts = torch.arange(chains, device=tokens.device)
    alive = batch.starts[:, :chains]
    attend = _OwnChains()
    for depth in range(1, min(DEPTHS, size - 2) + 1):
        read = tokens[:, (starts + depth).clamp(max=size - 1)]
        hidden = head.step(read, hidden, starts + depth - 1, attend)
        tried = (starts + depth + 1).clamp(max=size - 1)
        alive = alive & (starts + depth + 1 < size)
        right = torch.zeros_like(alive)
        right[alive] = _guesses(head, hidden[alive]) == tokens[:, tried][alive]
        counted = alive & batch.counted[:, tried]
        seen[depth - 1] = counted.sum()
        hits[depth - 1] = (counted & right).sum()
        alive = right
    return hits, seen


class _OwnChains:
    """Attention of chains that grow in parallel.

    The first pass is causal. Each later pass has a row a chain: it sees what the chain's first row saw, and the chain's own rows.
    """

    def __init__(self) -> None:
        self._keys: list[torch.Tensor] = []
        self._values: list[torch.Tensor] = []

    def __call__(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        self._keys.append(key)
        self._values.append(value)
        rows = query.shape[2]
        own = torch.eye(rows, dtype=torch.bool, device=query.device)
        visible = torch.cat([own.new_ones(rows, rows).tril(), *[own] * (len(self._keys) - 1)], 1)
        keys, values = torch.cat(self._keys, 2), torch.cat(self._values, 2)
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=visible, enable_gqa=True)


def _guesses(head: EagleHead, states: torch.Tensor) -> torch.Tensor:
    """int64[k], the likeliest token of each of ``states`` [k, hidden]."""
    return torch.cat([head.logits(part).argmax(-1) for part in torch.split(states, _CHUNK)])
