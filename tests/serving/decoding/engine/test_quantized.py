"""Tests quantized checkpoints. Those of tested methods run, and others are refused in one line."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from suffolk.datastore.errors import Unsupported
from suffolk.serving.decoding.drafters.load import make_drafter
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.tiny_models import save_tiny, tiny_tokenizer

PROMPT = "one two three, one two three, one"


def quantized(method: str) -> Any:
    """The configuration that quantizes by ``method``, which must be installed."""
    if method == "torchao":
        return transformers.TorchAoConfig(pytest.importorskip("torchao.quantization").Int8WeightOnlyConfig())
    pytest.importorskip("bitsandbytes")
    return transformers.BitsAndBytesConfig(**{method: True})


@pytest.mark.parametrize("method", ["load_in_8bit", "load_in_4bit", "torchao"])
def test_the_text_of_a_quantized_model_is_that_of_generate(tmp_path: Path, method: str) -> None:
    config = quantized(method)
    base = save_tiny(tmp_path / "base", hidden_size=64, intermediate_size=128)
    made = transformers.AutoModelForCausalLM.from_pretrained(base, quantization_config=config, dtype=torch.bfloat16)
    made.save_pretrained(tmp_path / "small")
    tiny_tokenizer().save_pretrained(tmp_path / "small")
    target = Target.load(str(tmp_path / "small"))
    drafter = make_drafter("prompt-lookup", target.vocab_size)
    texts = []
    with Engine(target, {"prompt-lookup": drafter}) as engine:
        for name in ("none", "prompt-lookup"):
            generation = engine.generate(PROMPT, SamplingSettings(max_new_tokens=40), name)
            list(generation)
            texts.append(generation.tokens)
    reference = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "small", dtype="auto")
    ids = torch.tensor([target.tokenizer(PROMPT)["input_ids"]])
    expected = reference.generate(ids, max_new_tokens=40, do_sample=False)[0, ids.shape[1] :].tolist()
    assert texts == [expected, expected]


def quantize_by(folder: Path, method: str, **settings: Any) -> str:
    file = save_tiny(folder) / "config.json"
    file.write_text(
        json.dumps(json.loads(file.read_text()) | {"quantization_config": {"quant_method": method} | settings})
    )
    return str(folder)


@pytest.mark.parametrize("method", ["gptq", "awq", "fp8", "compressed-tensors", "hqq"])
def test_other_methods_are_refused_in_one_line(tmp_path: Path, method: str) -> None:
    name = quantize_by(tmp_path, method)
    with pytest.raises(
        Unsupported, match=f"its weights are quantized by {method}; use unquantized ones, or bitsandbytes or"
    ):
        Target.load(name)


@pytest.mark.skipif(importlib.util.find_spec("bitsandbytes") is not None, reason="bitsandbytes is installed")
def test_a_missing_package_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="cannot load it as a causal LM .*bitsandbytes"):
        Target.load(quantize_by(tmp_path, "bitsandbytes", load_in_4bit=True))
