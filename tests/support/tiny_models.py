"""Tiny random models of many families. They use fp64, so that the order of a sum does not change a token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

import tests.support.quick_costs  # noqa: F401

VOCAB = 97
_COMMON = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
_GPT2 = {
    "vocab_size": VOCAB,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 512,
    "bos_token_id": None,
    "eos_token_id": None,
}
_WINDOW = {"sliding_window": 7}
_MIXED = {"sliding_window": 7, "layer_types": ["sliding_attention", "full_attention"]}

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", _COMMON | {"num_key_value_heads": 2}),
    "qwen2": ("Qwen2", _COMMON | {"num_key_value_heads": 2}),
    "qwen2-window": ("Qwen2", _COMMON | _MIXED | {"num_key_value_heads": 2, "use_sliding_window": True}),
    "qwen3": ("Qwen3", _COMMON | {"num_key_value_heads": 2, "head_dim": 8}),
    "gpt2": ("GPT2", _GPT2),
    "gpt-neox": ("GPTNeoX", _COMMON),
    "mistral": ("Mistral", _COMMON | _WINDOW | {"num_key_value_heads": 2, "head_dim": 8}),
    "gemma": ("Gemma", _COMMON | {"num_key_value_heads": 2, "head_dim": 8}),
    "gemma2": ("Gemma2", _COMMON | _MIXED | {"num_key_value_heads": 2, "head_dim": 8}),
    "gemma3": ("Gemma3Text", _COMMON | _MIXED | {"num_key_value_heads": 2, "head_dim": 8}),
    "phi3": ("Phi3", _COMMON | _WINDOW | {"num_key_value_heads": 2}),
    "phi": ("Phi", _COMMON),
    "olmo": ("Olmo", _COMMON),
    "olmo2": ("Olmo2", _COMMON),
    "opt": (
        "OPT",
        {k: v for k, v in _COMMON.items() if k != "intermediate_size"}
        | {"ffn_dim": 48, "word_embed_proj_dim": 32, "pad_token_id": 1},
    ),
}


def tiny_model(family: str = "llama", seed: int = 0, attention: str | None = None, **changes: Any) -> Any:
    """A random model of the family in fp64, whose logits are spread widely enough to avoid near-ties."""
    name, options = FAMILIES[family]
    config = getattr(transformers, f"{name}Config")(**(options | changes))
    if attention is not None:
        config._attn_implementation = attention
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config).to(torch.float64).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0.0, 0.25)
    model.generation_config.eos_token_id = None
    return model


def tiny_tokenizer() -> Any:
    """A byte-level tokenizer.

    Ids 0..255 are bytes, 256 ends a text, and a few longer tokens cross character boundaries.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<end>", special=True)])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")


def save_tiny(folder: Path, **changes: Any) -> Path:
    """A model folder: a tiny Llama over ``tiny_tokenizer``'s 257 ids, in fp64."""
    options = {"vocab_size": 257, "max_position_embeddings": 4096} | changes
    tiny_model("llama", **options).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder
