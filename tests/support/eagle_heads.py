"""Tiny EAGLE heads for tests, random or briefly trained, and the folder layouts in which heads are published."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.neural.eagle.config import EagleConfig
from suffolk.serving.decoding.drafters.neural.eagle.drafter import EagleDrafter
from suffolk.serving.decoding.drafters.neural.eagle.layer import causal
from suffolk.serving.decoding.drafters.neural.eagle.model import EagleHead
from suffolk.serving.decoding.drafters.neural.eagle.training import TrainableEagleHead
from suffolk.serving.decoding.drafters.neural.shared_embeddings import SharedEmbeddings
from suffolk.serving.decoding.drafters.neural.tree_bounds import TreeBounds
from suffolk.serving.decoding.drafters.training.head import Batch
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.tree_layout import chain
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.tiny_models import VOCAB, tiny_model

FREE = CostModel([1], [1e-12])
PROMPT = [(7 * number) % VOCAB for number in range(30)]
DRAFTED = [token for token in range(VOCAB) if token % 2 == 0][::-1]
"""Map from draft ids of a version 3 head to the target's ids."""
_FORM: dict[str, Any] = {
    "hidden_size": 32,
    "heads": 4,
    "key_value_heads": 2,
    "head_width": 8,
    "intermediate_size": 48,
    "vocab_size": VOCAB,
}
_TRAINED_FILES = {
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 48,
    "vocab_size": VOCAB,
    "num_hidden_layers": 1,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "architectures": ["LlamaForCausalLM"],
    "torch_dtype": "float64",
}


@cache
def tiny_target() -> Target:
    """The shared target of all heads here.

    Its layers have small weights, so that a head learns quickly. Do not modify it.
    """
    model = tiny_model()
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight *= 0.03
            layer.mlp.down_proj.weight *= 0.03
    return Target.wrap(model)


def eagle_config(version: int = 1, **changes: Any) -> EagleConfig:
    own = (
        {"layers": (2,), "fusion_bias": True}
        if version == 1
        else {"layers": (0, 1, 2), "draft_vocab_size": len(DRAFTED)}
    )
    return EagleConfig(version=version, **(_FORM | own | changes))


def random_head(version: int = 1, seed: int = 0, target: Target | None = None, **changes: Any) -> TrainableEagleHead:
    torch.manual_seed(seed)
    head = TrainableEagleHead(eagle_config(version, **changes), SharedEmbeddings.of(target or tiny_target())).to(
        torch.float64
    )
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.normal_(0.0, 0.15)
    if version == 3:
        head.d2t = torch.tensor(DRAFTED) - torch.arange(len(DRAFTED))
    return head.eval()


def drafter_of(head: EagleHead, **options: Any) -> EagleDrafter:
    """Create a drafter whose passes cost nothing."""
    chosen: dict[str, Any] = {"capacity": 400, "costs": FREE} | options
    return EagleDrafter(head, **chosen)


def eagle_bounds(width: int, max_depth: int, max_nodes: int) -> TreeBounds:
    """Bounds of a tree that is expanded level by level; each node gets as many children as a pass expands nodes."""
    return TreeBounds(max_depth, width, width, max_nodes, by_level=True)


@torch.inference_mode()
def features_of(tokens: list[int], layers: tuple[int, ...], target: Target | None = None) -> torch.Tensor:
    """Return random features, float[n, layers, width]."""
    target = target or tiny_target()
    found = target.forward(target.new_cache(1, len(tokens)), [0], [chain(np.asarray(tokens))], [1], layers).features
    assert found is not None
    return found


def first_draft(drafter: EagleDrafter, tokens: list[int], max_nodes: int = 60, **settings: Any) -> DraftTree:
    """Return the draft after ``tokens``, given the hidden states of all tokens except the last."""
    drafter.follow(1, features_of(tokens, drafter.layers)[:-1])
    request = DraftRequest(1, np.asarray(tokens, np.int32), max_nodes, len(tokens), SamplingSettings(**settings))
    (tree,) = drafter.propose([request])
    drafter.release(1)
    return tree


@cache
def own_texts(windows: int = 160, size: int = 16) -> torch.Tensor:
    """Return int64[windows, size]: the target's greedy continuations of random prefixes of 4 tokens."""
    target = tiny_target()
    texts = np.random.default_rng(5).integers(0, VOCAB, (windows, 4))
    kept = target.new_cache(windows, size)
    read = texts
    while texts.shape[1] < size:
        slots, parts = range(windows), [chain(row) for row in read]
        logits = target.forward(kept, slots, parts, [1] * windows).logits
        kept.keep(slots, [np.arange(len(part)) for part in parts])
        read = logits.argmax(-1).numpy()[:, None]
        texts = np.concatenate([texts, read], 1)
    return torch.from_numpy(texts)


def batch_of(tokens: torch.Tensor, layers: tuple[int, ...], target: Target | None = None) -> Batch:
    features = torch.stack([features_of(text, layers, target) for text in tokens.tolist()]).clone()
    return Batch(tokens, torch.ones_like(tokens, dtype=torch.bool), features)


@cache
def _trained_tensors(version: int) -> dict[str, torch.Tensor]:
    head = train_head(tiny_target(), own_texts(), version)
    return {name: tensor.detach().clone() for name, tensor in head.state_dict().items()}


def train_head(
    target: Target, texts: torch.Tensor, version: int = 1, steps: int = 100, **changes: Any
) -> TrainableEagleHead:
    """Train a head for ``steps`` steps on ``texts``, int64[windows, size]."""
    torch.manual_seed(0)
    head = TrainableEagleHead(eagle_config(version, **changes), SharedEmbeddings.of(target)).to(torch.float64)
    if version == 3:
        head.d2t = torch.tensor(DRAFTED) - torch.arange(len(DRAFTED))
    batch = batch_of(texts, head.layers, target)
    optimiser = torch.optim.Adam(head.parameters(), 1e-2)
    head.train()
    for _ in range(steps):
        optimiser.zero_grad()
        part = torch.randint(len(texts), (min(40, len(texts)),))
        some = Batch(batch.tokens[part], batch.counted[part], batch.features[part])
        torch.autograd.backward(head.losses(some).loss if version == 1 else _token_loss(head, some))
        optimiser.step()
    return head.eval()


def _token_loss(head: EagleHead, batch: Batch) -> torch.Tensor:
    """Return the cross-entropy of first drafted tokens, over tokens that the head can draft."""
    positions = torch.arange(batch.tokens.shape[1] - 1)
    states = head.step(batch.tokens[:, 1:], head.fuse(batch.features)[:, :-1], positions, causal)
    logits, wanted = head.logits(states)[:, :-1].log_softmax(-1), batch.tokens[:, 2:]
    chosen = logits.gather(-1, wanted[..., None])
    return -chosen[chosen.isfinite()].mean()


def trained_head(version: int = 1) -> EagleHead:
    """Train a head for a few dozen steps on the target's own outputs."""
    head = random_head(version)
    head.load_state_dict(_trained_tensors(version))
    return head


def write_folder(folder: Path, config: dict[str, Any], tensors: dict[str, torch.Tensor], binary: bool) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {name: tensor.clone().contiguous() for name, tensor in tensors.items()}
    if binary:
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        save_file(tensors, folder / "model.safetensors")
    return folder


def write_published(folder: Path, layout: str, head: EagleHead) -> Path:
    """Write ``head`` in a layout: own, eagle, eagle3, speculators-eagle or speculators-eagle3."""
    if layout == "own":
        folder.mkdir(parents=True)
        head.save(folder)
        return folder
    own = {name: tensor.detach() for name, tensor in head.state_dict().items()}
    model = tiny_target().model
    embedding = {"embed_tokens.weight": model.get_input_embeddings().weight.detach()}
    output = {"lm_head.weight": model.get_output_embeddings().weight.detach()}
    mask = torch.zeros(VOCAB, dtype=torch.bool)
    mask[DRAFTED] = True
    verifier: dict[str, Any] = {"speculators_config": {"algorithm": layout, "verifier": {"name_or_path": "tiny"}}}
    layers = {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]}
    if layout == "eagle":
        return write_folder(folder, _TRAINED_FILES, _moved(own, "layers.0.") | embedding, True)
    if layout == "eagle3":
        wide = _TRAINED_FILES | {"draft_vocab_size": len(DRAFTED), "eagle_config": layers}
        return write_folder(folder, wide, _moved(own, "midlayer.") | {"t2d": mask}, True)
    config: dict[str, Any] = {"transformer_layer_config": _TRAINED_FILES} | verifier
    if layout == "speculators-eagle":
        config |= {"speculators_model_type": "eagle", "layernorms": False, "fusion_bias": True}
        renamed = {name.replace("fc.", "fusion_fc.", 1): each for name, each in _moved(own, "transformer.").items()}
        return write_folder(folder, config, renamed | embedding | output, False)
    config |= {
        "speculators_model_type": "eagle3",
        "draft_vocab_size": len(DRAFTED),
        "norm_before_residual": False,
    } | layers
    return write_folder(folder, config, _moved(own, "layers.0.") | embedding | {"t2d": mask}, False)


def _moved(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {prefix + name[6:] if name.startswith("layer.") else name: each for name, each in tensors.items()}
