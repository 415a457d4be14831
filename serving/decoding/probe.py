"""Does this model do what tree decoding needs? Asked of every model once, because architectures are too many to list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from datastore.draft_tree import DraftTree
from datastore.errors import Unsupported
from serving.decoding.kv_cache import LayerShape, Shapes
from serving.decoding.tree_attention import lay_out

if TYPE_CHECKING:
    from serving.decoding.target import Target

_ATTENTIONS = ("sdpa", "eager")
_TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-3}
_LOW_PRECISION_TOLERANCE = 0.02
_NOISE_FACTOR = 3.0
"""A tree's logits may differ from a branch's by the tolerance plus this often what two plain ways of decoding the branch
differ by: root mean squares, in standard deviations of the logits. (Eager attention computes its softmax in fp32 always.)"""

_CONTEXT = 5
_PARENTS = np.array([-1, 0, -1, 2, 1, 3], np.int32)
_BRANCHES = ([0, 1, 4], [2, 3, 5])


def layer_shapes(model: Any, name: str) -> Shapes:
    """What each layer of ``model`` caches, seen from a forward pass over one token.

    Raises:
        Unsupported: an attention that takes no 4-D mask, or a cache that is not keys and values per token.
    """
    attention = getattr(model.config, "_attn_implementation", None)
    if attention not in _ATTENTIONS:
        raise Unsupported(
            f"model {name}: attention {attention!r} takes no tree mask; load it with sdpa or eager attention"
        )
    if getattr(model.config, "is_encoder_decoder", False):
        raise Unsupported(f"model {name}: it is an encoder-decoder; only decoder-only causal LMs can be targets")
    if "local" in (getattr(model.config, "attention_layers", None) or ()):
        raise Unsupported(
            f"model {name}: its local attention counts rows instead of positions, which a draft tree breaks"
        )
    cache = DynamicCache(config=model.config)
    with torch.inference_mode():
        try:
            output = model(
                input_ids=torch.zeros((1, 1), dtype=torch.int64, device=model.device),
                past_key_values=cache,
                use_cache=True,
            )
        except (TypeError, ValueError) as error:
            raise Unsupported(
                f"model {name}: it takes no past_key_values of the transformers Cache interface ({error})"
            ) from error
    if getattr(output, "past_key_values", None) is not cache or not any(layer.is_initialized for layer in cache.layers):
        raise Unsupported(
            f"model {name}: it keeps no keys and values (a recurrent model?); only attention models can be targets"
        )
    return tuple(_layer_shape(layer, number, model, name) for number, layer in enumerate(cache.layers))


def _layer_shape(layer: Any, number: int, model: Any, name: str) -> LayerShape | None:
    if type(layer).__name__ == "DummyLayer":  # shares another layer's keys and values, or has none
        return None
    types = getattr(model.config.get_text_config(decoder=True), "layer_types", None)
    kind = types[number] if types else type(layer).__name__
    if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer) or kind == "chunked_attention":
        raise Unsupported(f"model {name}: layer {number} is of the kind {kind}, whose cache cannot hold draft trees")
    window = layer.sliding_window if isinstance(layer, DynamicSlidingWindowLayer) else None
    return LayerShape(layer.keys.shape[1], layer.keys.shape[-1], layer.values.shape[-1], window)


def check_tree_attention(target: Target) -> None:
    """A pass over a small tree, and one more after compaction, must give the logits of the branches one by one.

    Raises:
        Unsupported: they differ by more than rounding: the model ignores or alters the mask or the positions.
    """
    tokens = ((np.arange(_CONTEXT + 1 + len(_PARENTS) + 1) * 7919 + 17) % target.vocab_size).astype(np.int32)
    context, drafted, last = tokens[: _CONTEXT + 1], tokens[_CONTEXT + 1 : -1], tokens[-1:]
    try:
        worst, noise = _differences(target, context, drafted, last)
    except (TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
        raise Unsupported(
            f"model {target.name}: it does not take a 4-D attention mask ({str(error).splitlines()[0]})"
        ) from error
    limit = _TOLERANCE.get(target.dtype, _LOW_PRECISION_TOLERANCE) + _NOISE_FACTOR * noise
    if not worst <= limit:
        raise Unsupported(
            f"model {target.name}: a draft tree changes its logits by {worst:.2g} standard deviations (limit {limit:.2g}); "
            "it does not honour 4-D attention masks or position ids"
        )


def _differences(target: Target, context: Any, drafted: Any, last: Any) -> tuple[float, float]:
    """(tree against branches in one pass each, branches token by token against the same): the largest of each."""
    size = len(drafted)
    tree = DraftTree(drafted, _PARENTS, np.ones(size, np.float32), np.ones(size, np.uint8))
    cache = target.new_cache(_CONTEXT + 2 + size)
    target.prefill(context[:-1], cache)
    rows = target.forward_tree(lay_out(int(context[-1]), tree), cache)
    branch = np.asarray(_BRANCHES[1])
    cache.keep(torch.from_numpy(np.concatenate([[0], branch + 1])).to(target.device))
    after = target.forward_tree(lay_out(int(last[0]), DraftTree.empty()), cache)
    worst = noise = 0.0
    for path in _BRANCHES:
        tokens = np.concatenate([context, drafted[path], last])
        expected = _in_one_pass(target, tokens)[_CONTEXT:]
        found = torch.cat([rows[[0, *(node + 1 for node in path)]], after if path == _BRANCHES[1] else expected[-1:]])
        worst = max(worst, _error(found, expected))
        noise = max(noise, _error(_token_by_token(target, tokens), expected))
    return worst, noise


def _error(found: torch.Tensor, expected: torch.Tensor) -> float:
    error = (found - expected).double().square().mean(-1).sqrt().max()
    return float(error / expected.double().std().clamp(min=1e-9))


@torch.inference_mode()
def _in_one_pass(target: Target, tokens: Any) -> torch.Tensor:
    ids = torch.from_numpy(np.asarray(tokens, np.int64)).to(target.device)
    logits: torch.Tensor = target.model(input_ids=ids[None], use_cache=False).logits[0, :, : target.vocab_size]
    return logits


def _token_by_token(target: Target, tokens: Any) -> torch.Tensor:
    cache = target.new_cache(len(tokens))
    target.prefill(tokens[:_CONTEXT], cache)
    return torch.cat([target.prefill(tokens[at : at + 1], cache) for at in range(_CONTEXT, len(tokens))])
