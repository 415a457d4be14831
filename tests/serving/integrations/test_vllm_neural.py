"""Tests retrieved drafts beside those of vLLM's neural drafter, with stand-ins for vLLM."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from suffolk.datastore.errors import Unsupported
from suffolk.serving.integrations.vllm import plugin
from tests.support.vllm_stand_ins import TEXTS, config_of, module, options_of


@dataclass
class DraftTokenIds:
    req_ids: list[str]
    draft_token_ids: list[list[int]]


def config_for(options: object, **changes: Any) -> Any:
    config = config_of(options)
    settings = {"method": "eagle", "async_scheduling": False, "draft_sample_method": "greedy", **changes}
    for name in ("method", "draft_sample_method"):
        setattr(config.speculative_config, name, settings[name])
    config.scheduler_config = SimpleNamespace(async_scheduling=settings["async_scheduling"])
    return config


def runner_with(sizes: list[int], own: list[list[int]] | None) -> Any:
    """A runner with the texts of ``TEXTS`` cut to ``sizes``, and the drafts of its own drafter. Row 1 reads its prompt."""
    runner = sys.modules["vllm.v1.worker.gpu_model_runner"].GPUModelRunner(SimpleNamespace())
    texts, names = np.zeros((len(sizes), 128), np.int32), ["a", "b", "c"][: len(sizes)]
    for row, size in enumerate(sizes):
        texts[row, :size] = TEXTS[row][:size]
    runner.input_batch = SimpleNamespace(
        req_ids=names,
        num_prompt_tokens=[20] * 3,
        random_reqs=set(),
        num_tokens_no_spec=np.array(sizes),
        token_ids_cpu=texts,
    )
    runner.discard_request_mask = SimpleNamespace(np=np.arange(8) == 1)
    runner.take_draft_token_ids = lambda: None if own is None else DraftTokenIds(names, own)
    return runner


def start(monkeypatch: pytest.MonkeyPatch, config: Any, runner: Any) -> Any:
    """Start a worker, as vLLM does, and one step of it."""
    module(monkeypatch, "vllm.platforms", current_platform=SimpleNamespace(is_cpu=lambda: False))
    plugin.register()
    sys.modules["vllm.v1.worker.worker_base"].WorkerWrapperBase(config, runner).init_device()
    step = SimpleNamespace(name="step", finished_req_ids=set(), num_spec_tokens_to_schedule=4)
    runner.execute_model(step)
    return step


def test_rows_get_longer_drafts(vllm: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = [TEXTS[0][30:32], [7, 7], []]
    runner = runner_with([30, 40, 50], own)
    start(monkeypatch, config_for(options_of(tmp_path)), runner)
    found = runner.take_draft_token_ids()
    assert found.req_ids == ["a", "b", "c"]
    assert found.draft_token_ids == [TEXTS[0][30:34], [7, 7], TEXTS[2][50:54]]  # row 1 still reads its prompt
    assert runner.drafter.stats()["drafts"] == 2


def test_the_neural_drafter_is_limited(vllm: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runner = runner_with([30], None)
    step = start(monkeypatch, config_for(options_of(tmp_path) | {"neural_tokens": 2}), runner)
    assert step.num_spec_tokens_to_schedule == 2
    assert runner.take_draft_token_ids() is None


@pytest.mark.parametrize("config", [config_for({}, method="custom_class"), config_for(None)], ids=["ours", "not asked"])
def test_other_drafters_are_left_alone(vllm: ModuleType, monkeypatch: pytest.MonkeyPatch, config: Any) -> None:
    runner = runner_with([30], [[5]])
    start(monkeypatch, config, runner)
    assert runner.take_draft_token_ids().draft_token_ids == [[5]]
    assert vars(runner.drafter) == {}


def test_settings_that_hide_drafts_are_refused(vllm: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = runner_with([30], [])
    for changes, hint in (
        ({"async_scheduling": True}, "set async_scheduling to False"),
        ({"draft_sample_method": "probabilistic"}, "set draft_sample_method to greedy"),
    ):
        with pytest.raises(Unsupported, match=hint):
            start(monkeypatch, config_for({}, **changes), runner)
    with pytest.raises(Unsupported, match="set VLLM_USE_V2_MODEL_RUNNER=0"):
        start(monkeypatch, config_for({}), SimpleNamespace(drafter=SimpleNamespace()))


def test_an_unsupported_version_is_left_alone(vllm: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm, "__version__", "0.34.0")
    runner = runner_with([30], [[5]])
    start(monkeypatch, config_for({}), runner)
    assert runner.take_draft_token_ids().draft_token_ids == [[5]]
