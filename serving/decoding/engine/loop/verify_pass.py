"""Collects the outcomes of a pass. The device may have verified some of the requests. The host verifies the other requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from suffolk.datastore.errors import SuffolkError
from suffolk.serving.decoding.engine.loop.drafter import tree_of
from suffolk.serving.decoding.engine.loop.drafter_pool import DrafterPool
from suffolk.serving.decoding.engine.loop.step_batch import BatchEntry
from suffolk.serving.decoding.engine.loop.verify_step import Outcome, verify
from suffolk.serving.decoding.engine.model.device_step import ON_HOST, SETTINGS, UNDECIDED, Drafts, Walks

_GREEDY = np.zeros(SETTINGS, np.int64)


@dataclass(frozen=True, slots=True)
class Verified:
    """A verified pass.

    Attributes:
        rows: the logits of each request that the host verified, by its number.
        outcomes: the outcome of each request whose prompt is read to its end, by its number.
        placed: bool[entries], whether the kept rows are already in place in the cache; None if the host verified all requests.
    """

    rows: dict[int, torch.Tensor]
    outcomes: dict[int, Outcome | SuffolkError]
    placed: npt.NDArray[np.bool_] | None


def drafts_of(entries: Sequence[BatchEntry], pool: DrafterPool) -> Drafts | None:
    """The drafts of ``entries`` that a device step can verify; None if there are none. If a drafter learns logits, the host
    verifies."""
    asked = [entry for entry in entries if entry.wanted]
    settings = [None if pool.learns(entry.request) else entry.request.row_settings for entry in asked]
    if not any(each is not None for each in settings):
        return None
    counts = np.fromiter((entry.wanted for entry in asked), np.int64, len(asked))
    parents, end = np.full(int(counts.sum()), -1), 0
    for entry, numbers in zip(asked, settings, strict=True):
        begin, end = end, end + entry.wanted
        if numbers is None:
            parents[begin:end] = ON_HOST
        elif entry.has_draft:
            parents[begin + 1 : end] = tree_of(entry.proposal).parents + 1
    table = np.array([_GREEDY if each is None else each for each in settings])
    return Drafts(counts, parents, np.repeat(table, counts, axis=0).T)


def verify_pass(entries: Sequence[BatchEntry], logits: torch.Tensor, walks: Walks | None) -> Verified:
    """Verify the ``logits`` of a pass over ``entries``. ``walks``: the results of a device step, if there was one."""
    outcomes: dict[int, Outcome | SuffolkError] = {}
    left = asked = [entry for entry in entries if entry.wanted]
    placed = None
    if walks is not None:
        left = []
        for entry, begin, count, token in zip(asked, walks.begins, walks.counts, walks.tokens, strict=True):
            if token == UNDECIDED:
                left.append(entry)
            else:
                outcomes[entry.request.number] = Outcome(walks.nodes[begin + 1 : begin + 1 + count], token)
        placed = np.fromiter((entry.request.number in outcomes for entry in entries), np.bool_, len(entries))
    if not left:
        return Verified({}, outcomes, placed)
    parts = torch.split(logits, [entry.wanted for entry in asked])
    rows = {entry.request.number: part for entry, part in zip(asked, parts, strict=True)}
    if outcomes:
        rows = {entry.request.number: rows[entry.request.number] for entry in left}
    requests, proposals = [entry.request for entry in left], [entry.proposal for entry in left]
    found = verify(requests, proposals, list(rows.values()), None if outcomes else logits)
    outcomes |= {number: each for number, each in zip(rows, found, strict=True) if each is not None}
    return Verified(rows, outcomes, placed)
