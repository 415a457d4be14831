"""Tests drafts that are merged with those of the host's own drafter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from suffolk.serving.integrations.core import DraftCore
from suffolk.serving.integrations.options import IntegrationOptions
from suffolk.serving.integrations.running_requests import Context
from tests.support.simulated_host import CLOCK, PASS_SECONDS
from tests.support.stores import make_store

VOCAB, MOST = 500, 8
TEXT = np.random.default_rng(3).integers(0, VOCAB, 120)


@pytest.fixture
def core(tmp_path: Path) -> DraftCore:
    make_store(tmp_path / "store", [[TEXT.tolist()]], vocab_size=VOCAB)
    options = IntegrationOptions((str(tmp_path / "store"),), prompt_lookup=False, row_cost=0.02)
    return DraftCore(options, VOCAB, "the model", clock=CLOCK, host_drafts=True)


def draft(core: DraftCore, text: np.ndarray, host: list[int], key: str = "a") -> list[int]:
    [chain] = core.draft_chains([Context(text.astype(np.int32), key)], MOST, host_chains=[host])
    return chain


def test_a_right_chain_is_continued_from_the_store(core: DraftCore) -> None:
    chain = draft(core, TEXT[:40], TEXT[40:43].tolist())
    assert chain == TEXT[40 : 40 + len(chain)].tolist()
    assert len(chain) > 3


def test_wrong_chains_are_replaced(core: DraftCore) -> None:
    for size in range(40, 60):
        chain = draft(core, TEXT[:size], [1, 2])
    assert chain == TEXT[59 : 59 + len(chain)].tolist()
    assert len(chain) > 2


def test_a_hosts_chain_is_kept_without_a_better_one(core: DraftCore) -> None:
    for size in range(1, 40):  # also when most of its tokens were wrong
        assert draft(core, np.full(size, 499), [3, 4, 5]) == [3, 4, 5]


def test_a_failure_leaves_the_hosts_chain(core: DraftCore, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(requests: object) -> None:
        raise MemoryError("no memory for drafts")

    monkeypatch.setattr(core.drafter, "propose", fail)
    for size in range(40, 50):
        assert draft(core, TEXT[:size], [1, 2]) == [1, 2]
    assert core.stats()["failed MemoryError"] == 3


def test_losses_of_the_host_do_not_pause_retrieval(tmp_path: Path) -> None:
    """The host drafts wrongly in all of 300 steps, and rows are dear. Then the store knows the text."""
    make_store(tmp_path / "store", [[TEXT.tolist()]], vocab_size=VOCAB)
    options = IntegrationOptions((str(tmp_path / "store"),), prompt_lookup=False, row_cost=0.2)
    core = DraftCore(options, VOCAB, "the model", clock=CLOCK, host_drafts=True)
    for size in range(1, 301):
        assert draft(core, np.full(size, 499), [3, 4, 5]) == [3, 4, 5]
        CLOCK.now += PASS_SECONDS
    size, steps = 20, 0
    while size < 100:
        chain = np.array(draft(core, np.concatenate([np.full(300, 499), TEXT[:size]]), [3, 4, 5]))
        size += 1 + int((np.cumprod(chain == TEXT[size : size + len(chain)])).sum())
        steps += 1
        CLOCK.now += PASS_SECONDS
    assert steps < 40


def test_the_acceptance_of_each_depth_is_learned(core: DraftCore) -> None:
    for size in range(20, 60, 2):  # the first token is right, the second wrong
        draft(core, TEXT[:size], [int(TEXT[size]), 499])
    stats = core.stats()
    assert stats["acceptance_1"] > 0.9
    assert stats["acceptance_2"] < 0.2
