"""What a token saves requests that draft together."""

from __future__ import annotations

import numpy as np
import pytest

from suffolk.serving.engine.loop.drafter import DraftRequest, mean_worth


@pytest.mark.parametrize("order", [1, -1])
def test_a_pass_for_several_is_weighed_by_what_it_saves_all_of_them(order: int) -> None:
    """The first request alone decided: one that copied its prompt had no drafts made for one that did not."""
    tokens = np.zeros(4, np.int32)
    requests = [DraftRequest(number, tokens, 8, token_seconds=1.0, rate=rate) for number, rate in ((1, 4.0), (2, 1.0))]
    assert mean_worth(requests[::order]) == pytest.approx(0.625)
