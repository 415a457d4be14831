"""Checks by a trial pass that a loaded model can decode trees. A list of supported architectures would be too long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import Unsupported
from suffolk.serving.decoding.engine.model.kv_cache import LayerShape, Shapes
from suffolk.serving.decoding.engine.model.language_model import LanguageModel
from suffolk.serving.decoding.engine.model.pass_result import run_model
from suffolk.serving.decoding.engine.model.tree_attention import NAME, Rows, Terms
from suffolk.serving.decoding.engine.model.tree_layout import chain, lay_out
from suffolk.serving.decoding.engine.user_code_errors import message_line

_TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-3}
LOW_PRECISION_TOLERANCE = 0.2
"""Tolerance in bf16 and fp16, in standard deviations of the logits. Rounding causes less, a wrong mask or position much more."""
_NOISE_FACTOR = 3.0
"""Factor in the limit of a tree's deviation from its branches.

The limit is the tolerance plus this factor times the deviation between two plain ways of decoding a branch. All are root mean
squares, in standard deviations of the logits. (Eager attention always computes its softmax in fp32.)
"""

_CONTEXT = 5
_PARENTS = np.array([-1, 0, -1, 2, 1, 3], np.int32)
_BRANCHES = ([0, 1, 4], [2, 3, 5])


@dataclass(frozen=True, slots=True)
class Branches:
    """A model's logits for the branches of a small tree, run one by one with the model's own attention.

    Attributes:
        logits: for each branch [context's last token, its nodes, one more token; vocab].
        noise: the deviation of the same logits when a branch is decoded token by token.
    """

    logits: list[torch.Tensor]
    noise: float


def layer_shapes(model: Any, name: str) -> Shapes:
    """The shape of each layer's cache in ``model``, from a forward pass over one token.

    Raises:
        Unsupported: the model's attention cannot be replaced or is replaced already, or its cache is not keys and values per token.
    """
    if not model._can_set_attn_implementation():
        raise Unsupported(
            f"model {name}: its attention cannot be replaced (it does not go through transformers' AttentionInterface)"
        )
    if model.config._attn_implementation == NAME:
        raise Unsupported(f"model {name}: it belongs to another Target; load it again")
    if getattr(model.config, "is_encoder_decoder", False):
        raise Unsupported(f"model {name}: it is an encoder-decoder; only decoder-only causal LMs can be targets")
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


def vocab_size(model: Any) -> int:
    """The number of ids that can be both sampled and read as input."""
    embeddings: int = model.get_input_embeddings().num_embeddings
    head = model.get_output_embeddings()
    return min(embeddings, head.weight.shape[0]) if head is not None else embeddings


def run_branches(model: Any) -> Branches:
    """Run the branches of the small tree through ``model`` with its own attention."""
    context, drafted, last = _tokens(vocab_size(model))
    logits: list[torch.Tensor] = []
    noise: list[float] = []
    for branch in _BRANCHES:
        tokens = np.concatenate([context, drafted[branch], last])
        found = _in_one_pass(model, tokens)
        noise.append(deviation(_token_by_token(model, tokens), found))
        logits.append(found)
    return Branches(logits, float(np.max(noise)))


def check_tree_attention(target: LanguageModel, expected: Branches) -> None:
    """Compare a pass over a small tree, and one more after compaction, with the branches one by one.

    Raises:
        Unsupported: they differ by more than rounding, because the model ignores or alters the attention or the positions.
    """
    try:
        worst = _difference(target, expected)
    except (Unsupported, TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
        raise Unsupported(f"model {target.name}: it does not take tree attention ({message_line(error)})") from error
    _require_windows(target)
    limit = _TOLERANCE.get(target.dtype, LOW_PRECISION_TOLERANCE) + _NOISE_FACTOR * expected.noise
    if not worst <= limit:
        raise Unsupported(
            f"model {target.name}: a draft tree changes its logits by {worst:.2g} standard deviations (limit {limit:.2g}); "
            "it ignores or changes tree attention or the position ids"
        )


def _difference(target: LanguageModel, expected: Branches) -> float:
    """The deviation of the tree from the branches. The pass has a second request, so that packing is checked too."""
    context, drafted, last = _tokens(target.vocab_size)
    size = len(drafted)
    tree = DraftTree(drafted, _PARENTS, np.ones(size, np.float32), np.ones(size, np.uint32))
    cache = target.new_cache(2, _CONTEXT + 2 + size)
    for slot in (0, 1):
        target.prefill(context[:-1], cache, slot)
    rows = target.forward(
        cache, [1, 0], [lay_out(int(last[0]), tree), lay_out(int(context[-1]), tree)], [0, size + 1]
    ).logits
    kept = np.asarray([0, *(node + 1 for node in _BRANCHES[1])])
    cache.keep([1, 0], [np.arange(1), kept])
    after = target.forward(cache, [0], [lay_out(int(last[0]), DraftTree.empty())], [1]).logits
    deviations: list[float] = []
    for branch, logits in zip(_BRANCHES, expected.logits, strict=True):
        found = rows[[0, *(node + 1 for node in branch)]]
        if branch == _BRANCHES[1]:
            found = torch.cat([found, after])
        deviations.append(deviation(found, logits[: len(found)]))
    return float(np.max(deviations))  # NaN if any is NaN


class _WindowRecorder:
    """Rows that record each layer's window."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.windows: dict[int, int | None] = {}

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, terms: Terms) -> torch.Tensor:
        self.windows[terms.layer] = terms.window
        return self._rows.attend(query, key, value, terms)


def _require_windows(target: LanguageModel) -> None:
    """Raise Unsupported if a layer applies its window only by its mask, which tree attention replaces.

    The small tree cannot show this, because it is shorter than any window.
    """
    cache = target.new_cache(1, 1)
    packed, rows = target.place(cache, [0], [chain(np.zeros(1, np.int64))])
    recorder = _WindowRecorder(rows)
    with torch.inference_mode():
        run_model(target.model, packed[:1], packed[1:2], cache.layers, recorder, target.vocab_size)
    for layer, shape in enumerate(target.shapes):
        if shape is not None and shape.window is not None and recorder.windows.get(layer, shape.window) is None:
            raise Unsupported(
                f"model {target.name}: layer {layer} has a window of {shape.window} tokens and does not pass it to its attention"
            )


def _tokens(vocab: int) -> tuple[Any, Any, Any]:
    """A context, the tree's tokens, and the token after them."""
    tokens = ((np.arange(_CONTEXT + 1 + len(_PARENTS) + 1) * 7919 + 17) % vocab).astype(np.int32)
    return tokens[: _CONTEXT + 1], tokens[_CONTEXT + 1 : -1], tokens[-1:]


def deviation(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest root mean square of a row's differences, in standard deviations of the ``expected`` logits."""
    error = (found - expected).double().square().mean(-1).sqrt().max()
    return float(error / expected.double().std().clamp(min=1e-9))


@torch.inference_mode()
def _in_one_pass(model: Any, tokens: Any) -> torch.Tensor:
    ids = torch.from_numpy(np.asarray(tokens, np.int64)).to(model.device)
    logits: torch.Tensor = model(input_ids=ids[None], use_cache=False).logits[0, _CONTEXT:, : vocab_size(model)]
    return logits


@torch.inference_mode()
def _token_by_token(model: Any, tokens: Any) -> torch.Tensor:
    ids = torch.from_numpy(np.asarray(tokens, np.int64)).to(model.device)[None]
    cache = DynamicCache(config=model.config)
    parts = [ids[:, :_CONTEXT], *torch.split(ids[:, _CONTEXT:], 1, 1)]
    rows = [model(input_ids=part, past_key_values=cache, use_cache=True).logits[0, -1:] for part in parts]
    return torch.cat(rows[1:])[:, : vocab_size(model)]
