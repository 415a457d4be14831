"""Stand-ins for the parts of vLLM that the adapter imports, wraps and reads."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.stores import make_store

VOCAB = 500
TEXTS = [np.random.default_rng(seed).integers(0, VOCAB, 90).tolist() for seed in range(3)]


class GPUModelRunner:
    """The parts of vLLM's runner that are wrapped and read."""

    def __init__(self, drafter: Any) -> None:
        self.drafter, self.input_batch = drafter, None

    def execute_model(self, scheduler_output: Any, intermediate_tensors: Any = None) -> str:
        return f"{scheduler_output.name} {intermediate_tensors}"


class WorkerWrapperBase:
    """Makes a worker with a runner, as ``worker_base.WorkerWrapperBase``."""

    def __init__(self, config: Any, runner: Any) -> None:
        self.vllm_config, self._runner = config, runner

    def init_device(self) -> None:
        self.worker = SimpleNamespace(model_runner=self._runner)


def module(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> ModuleType:
    made = ModuleType(name)
    made.__dict__.update(content)
    monkeypatch.setitem(sys.modules, name, made)
    return made


def stand_in_vllm(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Stand-ins for the modules of vLLM that the adapter imports."""
    for name in ("distributed", "v1", "v1.worker", "v1.sample", "v1.sample.ops"):
        module(monkeypatch, f"vllm.{name}")
    module(monkeypatch, "vllm.v1.worker.worker_base", WorkerWrapperBase=type("Wrapper", (WorkerWrapperBase,), {}))
    module(monkeypatch, "vllm.v1.worker.gpu_model_runner", GPUModelRunner=type("Runner", (GPUModelRunner,), {}))
    sampler = module(monkeypatch, "vllm.v1.sample.ops.topk_topp_sampler", apply_top_k_only=lambda logits, k: k.max())
    sys.modules["vllm.v1.sample.ops"].topk_topp_sampler = sampler  # type: ignore[attr-defined]
    module(monkeypatch, "vllm.distributed.parallel_state", get_tensor_model_parallel_rank=lambda: 0)
    return module(monkeypatch, "vllm", __version__="0.32.0")


def config_of(options: object = None, most: int = 4) -> Any:
    model = SimpleNamespace(
        model="the model", tokenizer=None, skip_tokenizer_init=True, max_model_len=128, get_vocab_size=lambda: VOCAB
    )
    additional = {} if options is None else {"suffolk": options}
    speculative = SimpleNamespace(num_speculative_tokens=most)
    return SimpleNamespace(model_config=model, speculative_config=speculative, additional_config=additional)


def options_of(tmp_path: Path) -> dict[str, Any]:
    make_store(tmp_path / "store", [TEXTS], vocab_size=VOCAB)
    return {"datastores": [str(tmp_path / "store")], "prompt_lookup": False, "row_cost": 0.0}
