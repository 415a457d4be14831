"""Tests the speculator for vLLM's model runner V2 with stand-ins of the runner's state."""

from __future__ import annotations

import sys
from pathlib import Path
from threading import Event
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from suffolk.datastore.errors import Unsupported
from suffolk.serving.integrations.vllm.speculator import Speculator, follow, parents_of
from tests.support.stores import make_store

VOCAB, MOST = 500, 4
TEXTS = [np.random.default_rng(seed).integers(1, VOCAB, 90).tolist() for seed in range(3)]


class Runner:
    """The parts of vLLM's runner that the speculator reads. Texts are in rows of falling number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, world_size: int = 1) -> None:
        vllm = ModuleType("vllm")
        vllm.__version__ = "0.32.0"  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "vllm", vllm)
        event = SimpleNamespace(record=lambda: None, synchronize=lambda: None)
        monkeypatch.setattr(torch.cuda, "Event", lambda: event)
        make_store(tmp_path / "store", [TEXTS], vocab_size=VOCAB).close()
        model = SimpleNamespace(
            model="the model", tokenizer=None, skip_tokenizer_init=True, get_vocab_size=lambda: VOCAB
        )
        config = SimpleNamespace(
            model_config=model,
            speculative_config=SimpleNamespace(num_speculative_tokens=MOST),
            parallel_config=SimpleNamespace(world_size=world_size),
            additional_config={"suffolk": {"datastores": [str(tmp_path / "store")], "prompt_lookup": False}},
        )
        texts = torch.zeros(8, 128, dtype=torch.int32)
        self.totals = torch.zeros(8, dtype=torch.int32)
        self.states = SimpleNamespace(
            max_num_reqs=8,
            all_token_ids=SimpleNamespace(gpu=texts, _uva_buf=SimpleNamespace(np=texts.numpy())),
            total_len=SimpleNamespace(gpu=self.totals),
            prefill_len=SimpleNamespace(np=np.full(8, 20)),
            prompt_len=SimpleNamespace(np=np.full(8, 20)),
            req_id_to_index={"a": 7, "b": 6, "c": 5},
        )
        self.speculator = Speculator(config, torch.device("cpu"), self.states)

    def step(self, *sizes: int, dummy: bool = False) -> list[list[int]]:
        """One step, in which the texts of "a", "b" and "c" have ``sizes`` tokens."""
        rows = [7 - place for place in range(len(sizes))]
        for row, size, text in zip(rows, sizes, TEXTS, strict=False):
            self.states.all_token_ids.gpu[row, :size] = torch.tensor(text[:size])
            self.totals[row] = size
        batch = SimpleNamespace(
            num_reqs=len(rows),
            req_ids=["a", "b", "c"][: len(rows)],
            idx_mapping=torch.tensor(rows, dtype=torch.int32),
            idx_mapping_np=np.array(rows),
        )
        last = self.states.all_token_ids.gpu.gather(1, (self.totals.long() - 1).clamp(min=0)[:, None])
        drafts: list[list[int]] = self.speculator.propose(
            batch, None, None, None, None, None, None, last, dummy_run=dummy
        ).tolist()
        return drafts

    def finish_search(self) -> None:
        assert self.speculator._search is not None
        self.speculator._search.result()


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runner:
    return Runner(monkeypatch, tmp_path)


def filler(*sizes: int) -> list[list[int]]:
    return [[text[size - 1]] * MOST for text, size in zip(TEXTS, sizes, strict=False)]


def test_drafts_follow_the_tokens_of_passes_that_ended_after_the_search(runner: Runner) -> None:
    assert runner.step(30, 40) == filler(30, 40)
    runner.finish_search()
    assert runner.step(31, 43) == [TEXTS[0][31:35], TEXTS[1][43:47]]
    runner.finish_search()
    assert runner.step(32, 44, 50) == [TEXTS[0][32:36], TEXTS[1][44:48], *filler(1, 1, 50)[2:]]
    assert runner.speculator.stats()["failed"] == 0


def test_a_late_search_gives_no_draft_and_is_not_waited_for(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    release = Event()
    runner.speculator._thread.submit(release.wait)
    for size in (30, 31, 32):
        assert runner.step(size) == filler(size)
    release.set()
    runner.finish_search()
    assert runner.step(33) == [TEXTS[0][33:37]]  # of the text with 30 tokens


def test_prompts_get_no_draft(runner: Runner) -> None:
    runner.step(20)
    runner.finish_search()
    assert runner.step(21) == filler(21)


@pytest.mark.parametrize("passes", [1, 2, 3])
def test_a_tree_is_followed_for_the_tokens_of_two_passes(runner: Runner, passes: int) -> None:
    runner.step(30)
    runner.finish_search()
    size = 30 + passes * (MOST + 1)
    assert runner.step(size) == ([TEXTS[0][35:39]] if passes == 1 else filler(size))


def test_texts_off_the_tree_get_no_draft(runner: Runner) -> None:
    runner.step(30, 30)
    runner.finish_search()
    made, texts, rows = runner.speculator, runner.states.all_token_ids.gpu, torch.tensor([7, 6])
    trees = made._lengths[rows], made._tokens[rows], made._parents[rows]
    texts[rows, 30] = torch.tensor([0, TEXTS[1][30]], dtype=torch.int32)
    totals, last = torch.tensor([31, 31]), torch.tensor([-1, -1])
    assert follow(*trees, texts, rows, totals, last, 2).tolist() == [[-1, -1], TEXTS[1][31:33]]


def test_a_fault_costs_drafts_only(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise MemoryError("no memory for drafts")

    monkeypatch.setattr(runner.speculator._core.drafter, "propose", fail)
    for size in (30, 31):
        runner.step(size)
        runner.finish_search()
    assert runner.speculator.stats()["failed MemoryError"] == 2


def test_ended_requests_are_released(runner: Runner) -> None:
    runner.step(30, 40)
    runner.finish_search()
    del runner.states.req_id_to_index["b"]
    runner.step(31)
    runner.finish_search()
    assert runner.speculator._core._running._known.keys() == {"a"}
    assert runner.step(31, dummy=True) == [[0] * MOST]


def test_several_ranks_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They would draft different tokens, because each has its own thread."""
    with pytest.raises(Unsupported, match="one GPU"):
        Runner(monkeypatch, tmp_path, world_size=2)


def test_the_first_child_is_followed() -> None:
    """The tree: 5 has the children 6 and 7; 7 has the children 8 and 9."""
    mask = np.eye(5, dtype=np.bool_)
    mask[:, 0] = mask[3:, 2] = True
    parents = torch.from_numpy(parents_of(mask[None]))
    assert parents.tolist() == [[-1, 0, 0, 2, 2]]
    tokens, texts = torch.tensor([[5, 6, 7, 8, 9]]), torch.tensor([[4, 5, 7, 9]])
    row = torch.zeros(1, dtype=torch.int64)
    found = [
        follow(row + 2, tokens, parents, texts, row, row + total, texts[:, total - 1], 2).tolist()
        for total in (1, 2, 3, 4)
    ]
    assert found == [[[4, 4]], [[6, 5]], [[8, 7]], [[9, 9]]]
