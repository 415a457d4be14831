"""A device step samples every row exactly as ``Sampler`` does, whatever the settings of the other rows are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from suffolk.serving.decoding.engine.model.device_step import SETTINGS, UNDECIDED
from suffolk.serving.decoding.engine.model.row_contexts import RowContexts
from suffolk.serving.decoding.engine.sampling import row_sampling
from suffolk.serving.decoding.engine.sampling.candidates import GUESS
from suffolk.serving.decoding.engine.sampling.row_sampling import (
    CUT,
    GREEDY,
    WHOLE,
    cut_scores,
    sample_rows,
    whole_scores,
)
from suffolk.serving.decoding.engine.sampling.sampler import Sampler
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.examples import examples

CPU = torch.device("cpu")
WIDE = GUESS + 300

samplings = st.builds(
    SamplingSettings,
    temperature=st.sampled_from([0.0, 1e-6, 0.3, 0.7, 1.0, 1.7, 100.0]) | st.floats(0.01, 3.0),
    top_k=st.sampled_from([0, 1, 4, 50, GUESS - 1, WIDE]),
    top_p=st.sampled_from([1.0, 0.999, 0.9, 0.4, 1e-9]) | st.floats(0.01, 1.0),
    min_p=st.sampled_from([0.0, 1e-9, 0.05, 1.0]),
    seed=st.integers(0, 2**63 - 1),
)


def table_of(samplers: Sequence[Sampler]) -> torch.Tensor:
    found = [sampler.row_settings for sampler in samplers]
    assert all(each is not None and len(each) == SETTINGS for each in found)
    return torch.from_numpy(np.array(found, np.int64).T.copy())


@examples(300)
@given(
    st.lists(st.tuples(samplings, st.integers(1, 3000)), min_size=1, max_size=6),
    st.sampled_from([7, 200, GUESS, WIDE]),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    st.sampled_from([0.2, 3.0, 12.0]),
    st.integers(0, 2**32),
)
def test_rows_of_any_settings_are_sampled_as_alone(
    rows: list[tuple[SamplingSettings, int]], vocab: int, dtype: torch.dtype, spread: float, seed: int
) -> None:
    """The scores that decide are equal bit by bit. In bf16, many logits are equal."""
    rng = np.random.default_rng(seed)
    logits = torch.from_numpy(rng.normal(0, spread, (len(rows), vocab))).to(dtype)
    logits[0, : vocab // 2] = -torch.inf
    samplers = [Sampler(settings, vocab, CPU) for settings, _ in rows]
    contexts = [RowContexts.of_text(np.zeros(length, np.int32), 1) for _, length in rows]
    positions = torch.tensor([length for _, length in rows])
    table = table_of(samplers)
    found = sample_rows(logits, positions, table, int(table[0].max()))
    cut, tokens, wide = cut_scores(logits.float(), positions, table)
    scores = {
        CUT: torch.full(logits.shape, -torch.inf, dtype=torch.float64).scatter_(1, tokens, cut),
        WHOLE: whole_scores(logits.float(), positions, table),
    }
    for row, (sampler, context) in enumerate(zip(samplers, contexts, strict=True)):
        own, kind = logits[row : row + 1], int(table[0, row])
        if kind == CUT and wide[row]:
            assert found[row] == UNDECIDED
            continue
        assert found[row] == sampler.sample(own, context)[0]
        if kind != GREEDY:
            assert torch.equal(scores[kind][row], sampler.scores(own, context)[0])


def test_a_row_is_undecided_only_where_more_than_the_inspected_tokens_may_be_left() -> None:
    settings = [
        SamplingSettings(temperature=1.0),
        SamplingSettings(temperature=1.0, top_k=GUESS - 1),
        SamplingSettings(temperature=0.1, top_p=0.9),
        SamplingSettings(temperature=0.0, top_p=0.99),
        SamplingSettings(temperature=9.0, top_p=0.99),
        SamplingSettings(temperature=9.0, min_p=0.01),
    ]
    samplers = [Sampler(each, WIDE, CPU) for each in settings]
    logits = torch.from_numpy(np.random.default_rng(0).normal(0, 2, (len(settings), WIDE))).float()
    found = sample_rows(logits, torch.arange(len(settings)), table_of(samplers), WHOLE)
    assert (found == UNDECIDED).tolist() == [False, False, False, False, True, True]


def test_settings_that_need_more_are_not_for_the_device() -> None:
    assert Sampler(SamplingSettings(temperature=1.0, top_k=GUESS), WIDE, CPU).row_settings is None
    assert Sampler(SamplingSettings(presence_penalty=1.0), WIDE, CPU).row_settings is None
    assert Sampler(SamplingSettings(temperature=1.0, top_k=WIDE), WIDE, CPU).row_settings is not None


def test_blocks_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    samplers = [Sampler(SamplingSettings(temperature=0.1 * at, seed=at, top_p=0.8), 50, CPU) for at in range(7)]
    logits, positions = torch.from_numpy(np.random.default_rng(1).normal(0, 2, (7, 50))).float(), torch.arange(7)
    whole = sample_rows(logits, positions, table_of(samplers), CUT)
    monkeypatch.setattr(row_sampling, "PART", 100)
    assert torch.equal(sample_rows(logits, positions, table_of(samplers), CUT), whole)


@pytest.mark.parametrize("kind", [GREEDY, CUT, WHOLE])
def test_no_value_is_read_on_the_host(kind: int) -> None:
    """Tensors without values would refuse it. A CUDA graph cannot hold it either. The rows take several blocks."""
    logits = torch.empty((64, 150_000), dtype=torch.bfloat16, device="meta")
    positions, table = (torch.empty(size, dtype=torch.int64, device="meta") for size in (64, (SETTINGS, 64)))
    assert sample_rows(logits, positions, table, kind).shape == (64,)
