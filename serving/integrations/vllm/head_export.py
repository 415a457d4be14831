"""Writes EAGLE heads of ``suffolk train eagle`` in the layout that vLLM reads.

python -m suffolk.serving.integrations.vllm.head_export HEAD OUTPUT
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from suffolk.datastore.errors import SuffolkError, Unsupported
from suffolk.serving.decoding.drafters.neural.eagle.config import KIND, EagleConfig
from suffolk.serving.decoding.drafters.neural.head_folder import CONFIG, own_config, read_config
from suffolk.serving.decoding.drafters.neural.weights import read_tensors

_POSITIONS = 1 << 17
"""Longest text, in tokens. vLLM takes the target's limit if that is lower."""


def write_vllm_head(head: Path, output: Path) -> None:
    """Write the folder ``output`` for ``speculative_config`` with the method "eagle".

    Raises:
        NotFound, Corruption: the head's files are missing or damaged.
        Unsupported: the head is not an EAGLE head of Suffolk, or has a part that vLLM does not support.
    """
    from safetensors.torch import save_file

    config = own_config(EagleConfig, KIND, read_config(head), head / CONFIG)
    if config.version != 1 or config.fusion_bias:
        raise Unsupported(f"head {head}: only EAGLE heads of version 1 without a bias in fc can be written for vLLM")
    tensors = {
        name.replace("layer.", "layers.0.", 1): each for name, each in read_tensors(head / "model.safetensors").items()
    }
    output.mkdir(parents=True, exist_ok=True)
    (output / CONFIG).write_text(json.dumps(_llama_config(config), indent=1))
    save_file(tensors, output / "model.safetensors")


def _llama_config(config: EagleConfig) -> dict[str, Any]:
    scaling = config.rope_scaling
    rotary: dict[str, Any] = {"rope_theta": config.rope_theta, "rope_type": "llama3" if scaling else "default"}
    if scaling is not None:
        rotary |= {"factor": scaling.factor, "low_freq_factor": scaling.low, "high_freq_factor": scaling.high}
        rotary["original_max_position_embeddings"] = int(scaling.original)
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "hidden_act": "silu",
        "hidden_size": config.hidden_size,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.key_value_heads,
        "head_dim": config.head_width,
        "intermediate_size": config.intermediate_size,
        "vocab_size": config.vocab_size,
        "max_position_embeddings": _POSITIONS,
        "rms_norm_eps": config.rms_eps,
        "rope_parameters": rotary,
        "qkv_bias": config.attention_bias,
        "tie_word_embeddings": False,
    }


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        write_vllm_head(Path(sys.argv[1]), Path(sys.argv[2]))
    except SuffolkError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
