"""A retrieved tree behind a request's text, or behind drafted tokens at its end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from datastore.draft_tree import DraftTree
from serving.drafters.calibrator import Calibrator

Ids = npt.NDArray[np.int32]
NO_TOKENS: Ids = np.empty(0, np.int32)


@dataclass(frozen=True, slots=True)
class Behind:
    """``tree`` as its source found it for the text with ``path`` at the end."""

    path: Ids
    tree: DraftTree


def learn(calibrator: Calibrator, drafts: Iterable[Behind], tokens: Ids) -> None:
    """Count what the target's ``tokens`` behind the text say about ``drafts``; of those behind other tokens than these, nothing."""
    for draft in drafts:
        depth = len(draft.path)
        if len(tokens) > depth and np.array_equal(tokens[:depth], draft.path):
            calibrator.learn(draft.tree, tokens[depth:])
