"""Tests LoRA adapters that are merged into their model at load."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from suffolk.datastore.errors import Corruption, NotFound, Unsupported
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer
from suffolk.serving.decoding.drafters.load import make_drafter
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.target_loader import read_context_length, read_vocab_size
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.tiny_models import save_tiny

peft = pytest.importorskip("peft")
PROMPT = "one two three, one two three, one"


def save_adapter(folder: Path, base: Path, **changes: Any) -> Path:
    """An adapter of random weights for the model in ``base``, large enough to change its text."""
    torch.manual_seed(5)
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype="auto")
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM")
    adapted = peft.get_peft_model(model, config)
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_" in name:
                weight.normal_(0.0, 0.3)
    adapted.save_pretrained(folder)
    file = folder / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"base_model_name_or_path": str(base)} | changes))
    return folder


def generated(target: Target, drafter: str) -> list[int]:
    drafters = {"prompt-lookup": make_drafter("prompt-lookup", target.vocab_size)}
    with Engine(target, drafters) as engine:
        generation = engine.generate(PROMPT, SamplingSettings(max_new_tokens=40), drafter)
        list(generation)
        return generation.tokens


def reference(folder: Path, base: Path) -> list[int]:
    """The tokens of the model that peft merges."""
    model = peft.PeftModel.from_pretrained(
        transformers.AutoModelForCausalLM.from_pretrained(base, dtype="auto"), folder
    )
    ids = transformers.AutoTokenizer.from_pretrained(base)(PROMPT, return_tensors="pt")["input_ids"]
    return model.merge_and_unload().generate(ids, max_new_tokens=40, do_sample=False)[0, ids.shape[1] :].tolist()


def test_the_text_is_that_of_pefts_merged_model(tmp_path: Path) -> None:
    base = save_tiny(tmp_path / "base")
    adapter = save_adapter(tmp_path / "adapter", base)
    target = Target.load(str(adapter))
    expected = reference(adapter, base)
    assert generated(target, "none") == generated(target, "prompt-lookup") == expected
    assert generated(Target.load(str(base)), "none") != expected  # the adapter counts
    assert not [name for name, _ in target.model.named_modules() if "lora" in name]


def test_what_the_folder_lacks_comes_from_the_model(tmp_path: Path) -> None:
    base = save_tiny(tmp_path / "base")
    adapter = str(save_adapter(tmp_path / "adapter", base))
    assert fingerprint(load_tokenizer(adapter)) == fingerprint(load_tokenizer(base))
    assert (read_vocab_size(adapter), read_context_length(adapter)) == (257, 4096)


def test_adapters_that_cannot_be_merged_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = save_tiny(tmp_path / "base")
    other = save_adapter(tmp_path / "prompt", base, peft_type="PROMPT_TUNING")
    with pytest.raises(Unsupported, match="its adapter is of kind PROMPT_TUNING; only LoRA adapters are merged"):
        Target.load(str(other))
    wide = save_adapter(
        tmp_path / "wide", save_tiny(tmp_path / "larger", hidden_size=64), base_model_name_or_path=str(base)
    )
    with pytest.raises(Unsupported, match="wide: its adapter does not fit"):
        Target.load(str(wide))
    gone = save_adapter(tmp_path / "gone", base, base_model_name_or_path=str(tmp_path / "nothing"))
    with pytest.raises(NotFound, match="nothing does not exist"):
        Target.load(str(gone))
    unnamed = save_adapter(tmp_path / "unnamed", base, base_model_name_or_path=None)
    with pytest.raises(Corruption, match="base_model_name_or_path is None; write the folder or hub name"):
        Target.load(str(unnamed))
    adapter = save_adapter(tmp_path / "adapter", base)
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(Unsupported, match=r"a LoRA adapter needs peft; pip install 'suffolk\[lora\]'"):
        Target.load(str(adapter))
