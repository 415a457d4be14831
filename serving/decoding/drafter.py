"""What the decoding loop expects of whoever proposes drafts. The implementations live in serving/drafters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from datastore.draft_tree import DraftTree


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """One running request, as its drafter sees it.

    Attributes:
        request_id: the same number for the whole life of the request.
        tokens: int32[n], prompt and generated tokens so far; not to be changed.
        max_nodes: the largest tree that may be returned, 0 or more.
    """

    request_id: int
    tokens: npt.NDArray[np.int32]
    max_nodes: int


class Drafter(Protocol):
    """Proposes trees for a batch of running requests and learns from what the target made of them.

    A tree's nodes are sorted by falling score, and a score is a calibrated probability that the node's whole path is
    accepted, so that the loop may keep any first part of a tree. A fault of the drafter's own (a service gone, a
    deadline missed) is counted inside and answered with an empty tree, never raised.
    """

    name: str

    def propose(self, requests: Sequence[DraftRequest]) -> list[DraftTree]:
        """One tree per request, in order; possibly empty, never more than the request's ``max_nodes`` nodes."""
        ...

    def observe(self, request_id: int, tokens: npt.NDArray[np.int32]) -> None:
        """The target's own tokens that followed the context of the last ``propose`` (one or more), accepted or not."""
        ...

    def release(self, request_id: int) -> None:
        """The request has ended; forget it."""
        ...

    def stats(self) -> dict[str, float]:
        """Counters for reports: calls, missed (no draft because of a fault), "missed REASON", and what the drafter adds."""
        ...

    def close(self) -> None:
        """Give back connections and memory."""
        ...
