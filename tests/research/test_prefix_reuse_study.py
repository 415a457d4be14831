"""The loads of ``research.prefix_reuse`` read fewer prompt tokens with reuse, and their texts agree."""

from __future__ import annotations

import numpy as np
import pytest

from research.prefix_reuse import measure
from suffolk.serving.decoding.engine.model.target import Target
from tests.support.tiny_models import VOCAB, tiny_model

TEXT = np.random.default_rng(0).integers(0, VOCAB, 200).tolist()


@pytest.mark.parametrize(
    ("case", "prompt_tokens", "read"),
    [
        ("system prompt", 4 * 64, 64 + 3 * 24),
        ("chat", 64 + 92 + 120 + 148, 64 + 3 * 25),  # the last token of an answer was not read
        ("samples", 8 * 40, 40 + 7),
    ],
)
def test_what_is_read(case: str, prompt_tokens: int, read: int) -> None:
    target = Target.wrap(tiny_model("llama"), name="tiny")
    whole, reused = (measure(target, TEXT, case, 40, 4, reuse) for reuse in (False, True))
    assert whole.texts == reused.texts
    assert (whole.read, reused.read) == (prompt_tokens, read)
    assert whole.prompt_tokens == reused.prompt_tokens == prompt_tokens
