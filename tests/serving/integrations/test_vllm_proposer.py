"""Tests the proposer for vLLM with the calls of vLLM's runner. A stand-in replaces vLLM here; 'make vllm' runs the real one."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from suffolk.datastore.context_query import ContextQuery
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument, Unsupported
from suffolk.datastore.watched_datastore import WatchedDatastore
from suffolk.serving.integrations.core import FinishedText
from suffolk.serving.integrations.vllm import patches, plugin
from suffolk.serving.integrations.vllm import proposer as runner_hook
from suffolk.serving.integrations.vllm.proposer import Proposer
from tests.support.vllm_stand_ins import TEXTS, config_of, module, options_of


def propose(proposer: Proposer, sizes: list[int], sampled: list[list[int]] | None = None) -> list[list[int]]:
    """One call, for the texts of ``TEXTS`` cut to ``sizes``."""
    tokens = np.zeros((len(sizes), 128), np.int32)
    for row, size in enumerate(sizes):
        tokens[row, :size] = TEXTS[row][:size]
    return proposer.propose(sampled or [[1]] * len(sizes), np.array(sizes, np.int32), tokens, slot_mappings=None)


def test_rows_get_their_continuations(vllm: ModuleType, tmp_path: Path) -> None:
    proposer = Proposer(config_of(options_of(tmp_path)))
    proposer.load_model(object())
    drafts = propose(proposer, [30, 40, 50], [[1], [], [1, 2]])
    assert drafts == [TEXTS[0][30:34], [], TEXTS[2][50:54]]
    assert proposer.stats()["draft_tokens"] == 8


def test_a_step_looks_up_two_endings_of_each_request_in_one_call(
    vllm: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[int]] = []
    find = WatchedDatastore.find_drafts

    def watched(store: WatchedDatastore, query: ContextQuery) -> list[DraftTree]:
        calls.append([len(context) for context in query.contexts])
        return find(store, query)

    monkeypatch.setattr(WatchedDatastore, "find_drafts", watched)
    propose(Proposer(config_of(options_of(tmp_path))), [30, 40])
    assert calls == [[16, 3, 16, 3]]


def test_drafts_end_with_the_longest_text(vllm: ModuleType, tmp_path: Path) -> None:
    config = config_of(options_of(tmp_path))
    config.model_config.max_model_len = 33
    assert propose(Proposer(config), [30, 32]) == [TEXTS[0][30:32], []]


def test_the_runner_names_its_requests(vllm: ModuleType, tmp_path: Path) -> None:
    finished: list[FinishedText] = []
    proposer = type("Keeping", (Proposer,), {"on_finish": staticmethod(finished.append)})(
        config_of(options_of(tmp_path))
    )
    Proposer(config_of(options_of(tmp_path / "again")))  # wraps nothing a second time
    runner = sys.modules["vllm.v1.worker.gpu_model_runner"].GPUModelRunner(proposer)
    runner.input_batch = SimpleNamespace(req_ids=["a", "b"], num_prompt_tokens=[20, 25], random_reqs={"b"})
    step = SimpleNamespace(name="step", finished_req_ids=set(), num_spec_tokens_to_schedule=2)
    assert runner.execute_model(step, "tensors") == "step tensors"
    assert [len(each) for each in propose(proposer, [30, 30])] == [2, 2]
    step.finished_req_ids = {"a", "never seen"}
    runner.execute_model(step)
    [text] = finished
    assert (text.key, text.tokens.tolist(), text.prompt_tokens) == ("a", TEXTS[0][:30], 20)
    for other in (SimpleNamespace(), None):  # runners with other drafters, or with none
        assert sys.modules["vllm.v1.worker.gpu_model_runner"].GPUModelRunner(other).execute_model(step) == "step None"


def test_one_rank_drafts(vllm: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["vllm.distributed.parallel_state"], "get_tensor_model_parallel_rank", lambda: 1)
    proposer = Proposer(config_of({"datastores": ["missing"]}))
    proposer.begin_step(None, SimpleNamespace(finished_req_ids={"a"}))
    assert propose(proposer, [30, 30]) == [[], []]
    assert proposer.stats() == {}


def test_bad_configurations_are_refused(vllm: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgument, match=r"additional_config\['suffolk'\]: unknown key 'store'"):
        Proposer(config_of({"store": "x"}))
    for version in ("0.31.9", "0.34.0", "0.320.1"):
        monkeypatch.setattr(vllm, "__version__", version)
        with pytest.raises(Unsupported, match=f"vLLM is {version}; suffolk.vllm.Proposer is written for 0.32 and 0.33"):
            Proposer(config_of())
    monkeypatch.setattr(vllm, "__version__", "0.33.0")
    assert propose(Proposer(config_of()), [30]) == [[]]


def test_values_are_expanded_to_rows() -> None:
    values, ends = torch.tensor([0.5, 0.0, 2.0]), torch.tensor([2, 2, 5], dtype=torch.int32)
    output = torch.full((8,), 7.0)
    patches.expand(output, values, ends, 2.0, 1.0, MAX_NUM_TOKENS=128)
    assert output.tolist() == [0.5, 0.5, 1.0, 1.0, 1.0, 7.0, 7.0, 7.0]


@pytest.mark.parametrize("cpu", [True, False])
def test_the_plugin_mends_cpus_only(monkeypatch: pytest.MonkeyPatch, vllm: ModuleType, cpu: bool) -> None:
    utils = module(monkeypatch, "vllm.utils", cpu_triton_utils=SimpleNamespace(_expand_kernel_impl=None))
    module(monkeypatch, "vllm.platforms", current_platform=SimpleNamespace(is_cpu=lambda: cpu))
    plugin.register()
    assert utils.cpu_triton_utils._expand_kernel_impl is (patches.expand if cpu else None)


def test_top_k_takes_no_rows(vllm: ModuleType) -> None:
    for _ in range(2):
        patches.allow_no_rows()
    apply = sys.modules["vllm.v1.sample.ops.topk_topp_sampler"].apply_top_k_only
    assert apply(torch.empty(0, 9), torch.empty(0)).shape == (0, 9)
    assert apply(torch.empty(2, 9), torch.tensor([3, 4])) == 4


def test_the_runner_is_wrapped_once(vllm: ModuleType) -> None:
    runner = sys.modules["vllm.v1.worker.gpu_model_runner"].GPUModelRunner
    runner_hook.install()
    wrapped = runner.execute_model
    runner_hook.install()
    assert runner.execute_model is wrapped
