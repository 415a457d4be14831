"""Reads EAGLE heads from disk: Suffolk's own folders, and published layouts, whose tensors are renamed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from suffolk.datastore.errors import Corruption, Field, InvalidArgument, NotFound, Unsupported
from suffolk.serving.decoding.drafters.neural.eagle.config import KIND, EagleConfig, RopeScaling
from suffolk.serving.decoding.drafters.neural.head_folder import CONFIG, own_config, read_config
from suffolk.serving.decoding.drafters.neural.weights import DAMAGED, Tensors, read_tensors
from suffolk.serving.decoding.engine.model.target import Target

_PREFIXES = {
    "midlayer.": "layer.",
    "layers.0.": "layer.",
    "transformer.": "layer.",
    "fusion_fc.": "fc.",
    "embed_tokens.weight": "embed_tokens",
}
_COPIES = ("rotary_emb.inv_freq", "verifier_lm_head.weight", "verifier_norm.weight")
"""Tensors of some published heads that are copies of the target's."""
_UNKNOWN_PARTS = ("norm_before_fc", "fc_norm", "norm_output", "layernorms")


def read_checkpoint(folder: Path, target: Target) -> tuple[EagleConfig, Tensors]:
    """Read the folder of a head: Suffolk's own, original EAGLE (1, 2 and 3), or speculators'.

    Returns its configuration, and its tensors with the names of ``EagleHead.state_dict``. Copies of the target's tensors are left
    out.

    Raises:
        NotFound: config.json or the weights are missing.
        Corruption: a file is damaged, or a value of Suffolk's own config.json is out of its range.
        InvalidArgument: a value of another program's config.json is out of its range.
        Unsupported: the head has a part that ``EagleHead`` lacks.
    """
    values = read_config(folder)
    tensors = _read_tensors(folder)
    if "suffolk" in values:
        config = own_config(EagleConfig, KIND, values, folder / CONFIG)
        _check_vocabulary(tensors, config)
    else:
        tensors = {name: tensor for old, tensor in tensors.items() if (name := _our_name(old)) is not None}
        config = _foreign_config(values, tensors, target)
        _check_vocabulary(tensors, config)
        tensors = _without_target(tensors, config, target)
    return config, tensors


def _read_tensors(folder: Path) -> Tensors:
    files = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
    if not files:
        raise NotFound(f"{folder} has no weights; it needs model.safetensors or pytorch_model.bin")
    tensors: Tensors = {}
    for file in files:
        tensors |= _read_file(file)
    return tensors


def _read_file(file: Path) -> Tensors:
    if file.suffix == ".safetensors":
        return read_tensors(file)
    try:
        found = torch.load(file, map_location="cpu", weights_only=True)
    except DAMAGED as error:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise Corruption(f"{file}: it holds no plain weights ({line}); fetch it again") from error
    if not isinstance(found, dict) or not all(isinstance(each, torch.Tensor) for each in found.values()):
        raise Corruption(f"{file}: it holds no table of tensors; fetch it again")
    return found


def _our_name(name: str) -> str | None:
    if name.endswith(_COPIES):
        return None
    for old, new in _PREFIXES.items():
        if name.startswith(old):
            return new + name[len(old) :]
    return name


def _foreign_config(values: Mapping[str, Any], tensors: Tensors, target: Target) -> EagleConfig:
    """The configuration of a published head, from its config.json and the names of its tensors."""
    kind = values.get("speculators_model_type")
    if kind not in (None, "eagle", "eagle3"):
        raise Unsupported(Field("speculators_model_type"), f" is {kind!r}; eagle and eagle3 can be read")
    if part := next((name for name in _UNKNOWN_PARTS if values.get(name)), None):
        raise Unsupported(f"{part} is {values[part]!r}; heads with this part cannot be read")
    form = {**values, **_table(values, "transformer_layer_config")}
    if form.get("num_hidden_layers", 1) != 1:
        raise Unsupported(
            Field("num_hidden_layers"), f" is {form['num_hidden_layers']}; EAGLE heads of one layer can be read"
        )
    if form.get("hidden_act", "silu") != "silu":
        raise Unsupported(Field("hidden_act"), f" is {form['hidden_act']!r}; heads with silu can be read")
    rotary = _table(form, "rope_parameters") or _table(form, "rope_scaling")
    if missing := [name for name in _NEEDED if not isinstance(form.get(name), int)]:
        raise InvalidArgument(f"{missing[0]} is {form.get(missing[0])!r} in config.json; it must be a whole number")
    if values.get("target_hidden_size") not in (None, form["hidden_size"]):
        raise Unsupported(
            Field("target_hidden_size"),
            f" is {values['target_hidden_size']}, hidden_size {form['hidden_size']}; heads as wide as their "
            "target can be read",
        )
    version = 3 if kind == "eagle3" or "d2t" in tensors or "layer.hidden_norm.weight" in tensors else 1
    heads = form["num_attention_heads"]
    return EagleConfig(
        version=version,
        hidden_size=form["hidden_size"],
        heads=heads,
        key_value_heads=form.get("num_key_value_heads") or heads,
        head_width=form.get("head_dim") or form["hidden_size"] // max(1, heads),
        intermediate_size=form["intermediate_size"],
        vocab_size=form["vocab_size"],
        layers=_layers(values, target) if version == 3 else (target.layers,),
        draft_vocab_size=(values.get("draft_vocab_size") or form["vocab_size"]) if version == 3 else 0,
        rms_eps=form.get("rms_norm_eps", 1e-6),
        rope_theta=form.get("rope_theta") or rotary.get("rope_theta") or 10000.0,
        rope_scaling=_rope_scaling(rotary),
        fusion_bias="fc.bias" in tensors,
        attention_bias="layer.self_attn.q_proj.bias" in tensors,
        norm_before_residual=bool(values.get("norm_before_residual", False)),
    )


_NEEDED = ("hidden_size", "num_attention_heads", "intermediate_size", "vocab_size")


def _table(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The object called ``name`` in ``values``; empty if it is missing."""
    table = values.get(name) or {}
    if not isinstance(table, dict):
        raise InvalidArgument(Field(name), f" is {table!r} in config.json; it must be an object")
    return table


def _rope_scaling(rotary: Mapping[str, Any]) -> RopeScaling | None:
    kind = rotary.get("rope_type", rotary.get("type", "default"))
    if kind == "default":
        return None
    names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    if kind != "llama3" or not all(name in rotary for name in names):
        raise Unsupported(
            Field("rope_scaling"),
            f" is {dict(rotary)}; heads with plain or llama3 rotary positions can be read",
        )
    return RopeScaling(*(rotary[name] for name in names))


def _layers(values: Mapping[str, Any], target: Target) -> tuple[int, ...]:
    """The layers whose hidden states an EAGLE-3 head reads.

    Published heads number a hidden state in one of two ways: by how many layers computed it, as Suffolk does, or by the index of
    the last of these layers. The first number is usually 2 in the first way, and 1 in the second way.
    """
    own = _table(values, "eagle_config")
    ids = values.get("eagle_aux_hidden_state_layer_ids") or own.get("eagle_aux_hidden_state_layer_ids")
    if ids is None:
        return (2, target.layers // 2, target.layers - 3)
    if not isinstance(ids, list) or not all(isinstance(each, int) for each in ids):
        raise InvalidArgument(Field("eagle_aux_hidden_state_layer_ids"), f" is {ids!r}; it must be a list of layers")
    return tuple(each + 1 for each in ids) if ids[:1] == [1] else tuple(ids)


def _without_target(tensors: Tensors, config: EagleConfig, target: Target) -> Tensors:
    """``tensors`` without copies of the target's tensors, and without ``t2d``, which only serves checks."""
    left_out = {"t2d"}  # repeats ``d2t``
    if config.version == 1:
        left_out.add("lm_head.weight")
    embedding, own = target.model.get_input_embeddings().weight, tensors.get("embed_tokens")
    if own is not None and (config.version == 1 or _is_copy(own, embedding)):
        left_out.add("embed_tokens")
    kept = {name: tensor for name, tensor in tensors.items() if name not in left_out}
    if config.version == 3 and "d2t" not in kept and config.draft_vocab_size == config.vocab_size:
        kept["d2t"] = torch.zeros(config.vocab_size, dtype=torch.int64)
    return kept


def _is_copy(own: torch.Tensor, embedding: torch.Tensor) -> bool:
    return own.shape == embedding.shape and bool((own.to(embedding) == embedding).all())


def _check_vocabulary(tensors: Tensors, config: EagleConfig) -> None:
    """Raise InvalidArgument unless ``d2t`` maps to distinct ids of the target, and agrees with ``t2d``."""
    offsets, drafted = tensors.get("d2t"), tensors.get("t2d")
    if offsets is not None:
        ids = torch.arange(len(offsets)) + offsets.long()
        if len(offsets) != config.draft_vocab_size or int(ids.min()) < 0 or int(ids.max()) >= config.vocab_size:
            raise InvalidArgument(
                f"d2t has {len(offsets)} offsets to tokens {int(ids.min())}..{int(ids.max())}; {config.draft_vocab_size} to tokens "
                f"0..{config.vocab_size - 1} are needed (offsets, not token ids)"
            )
        if len(set(ids.tolist())) != len(ids):
            raise InvalidArgument("d2t gives several draft tokens the same id of the target's; fetch the head again")
        if drafted is not None and not torch.equal(drafted.nonzero().flatten(), ids.sort().values):
            raise InvalidArgument("d2t and t2d name different tokens; d2t must hold offsets, not token ids")
