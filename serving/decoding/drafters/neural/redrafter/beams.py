"""Beam search for several requests, and packing of beams into trees, in tensor operations (ReDrafter, section 2, listing 1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from suffolk.datastore.draft_tree import DraftTree

PAD = -1
"""Token that fills a beam after its end."""


class BeamSearch:
    """The most likely continuations of each request, grown token by token. Not thread-safe.

    At first each request has one beam without tokens. A beam that has ended still competes with the others.

    Attributes:
        tokens: int64[requests, beams, t], best beams first; ``PAD`` after a beam's end.
        log_probs: float64[requests, beams, t], the conditional log-probability of each token; 0 after a beam's end.
        open: bool[requests, beams], which beams have not ended.
    """

    def __init__(self, lengths: torch.Tensor, width: int, ends: torch.Tensor) -> None:
        """Begin with empty beams.

        Args:
            lengths: int64[requests], the most tokens of each request's beams.
            width: the number of beams per request.
            ends: int64[requests, k], the tokens that end a beam, filled up with ``PAD``.
        """
        self._lengths, self._width, self._ends = lengths[:, None], width, ends[:, None]
        self._totals = torch.zeros((len(lengths), 1), dtype=torch.float64, device=lengths.device)
        self.tokens = lengths.new_empty((len(lengths), 1, 0))
        self.log_probs = self._totals.new_empty((len(lengths), 1, 0))
        self.open = self._lengths > 0
        self._dropped: list[tuple[torch.Tensor, torch.Tensor]] = []

    def explored(self) -> tuple[torch.Tensor, torch.Tensor]:
        """``tokens`` and ``log_probs`` of all beams so far, latest step first. Prefixes are repeated."""
        length = self.tokens.shape[2]
        parts = [(self.tokens, self.log_probs), *reversed(self._dropped)]
        return (
            torch.cat([F.pad(tokens, (0, length - tokens.shape[2]), value=PAD) for tokens, _ in parts], 1),
            torch.cat([F.pad(log_probs, (0, length - log_probs.shape[2])) for _, log_probs in parts], 1),
        )

    def grow(self, log_probs: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Extend the beams: keep the best of all candidates and of the beams that have ended.

        The search is exact if k is at least ``width`` or the vocabulary's size.

        Args:
            log_probs: float64[requests, beams, k], conditional log-probabilities. The entries of ended beams are
                ignored.
            tokens: int64[requests, beams, k], the candidates.

        Returns:
            int64[requests, new beams], the beam that each new beam continues.
        """
        requests, beams, count = tokens.shape
        if self.tokens.shape[2]:
            self._dropped.append((self.tokens, self.log_probs))
        grown = (self._totals[..., None] + log_probs).masked_fill(~self.open[..., None], -torch.inf)
        ended = self._totals.masked_fill(self.open, -torch.inf)
        choices = torch.cat([grown.flatten(1), ended], 1)
        self._totals, chosen = choices.topk(min(self._width, choices.shape[1]))
        # if candidates are too few, some choices are invalid
        stays = (chosen >= beams * count) | (self._totals == -torch.inf)
        origins = torch.where(chosen >= beams * count, chosen - beams * count, chosen // count)
        candidates = chosen.clamp(max=beams * count - 1)
        newest = tokens.flatten(1).gather(1, candidates).masked_fill(stays, PAD)
        gained = log_probs.flatten(1).gather(1, candidates).masked_fill(stays, 0.0)
        self.tokens = torch.cat([take(self.tokens, origins), newest[..., None]], 2)
        self.log_probs = torch.cat([take(self.log_probs, origins), gained[..., None]], 2)
        ending = (newest[..., None] == self._ends).any(-1)
        self.open = ~stays & ~ending & (self._lengths > self.tokens.shape[2])
        return origins


@dataclass(frozen=True, slots=True)
class Packed:
    """The beams of one request as a tree.

    Attributes:
        tree: the tree, sorted by falling score with parents first.
        places: int64[nodes], the place of each node in the request's beams: beam * length + depth.
    """

    tree: DraftTree
    places: npt.NDArray[np.int64]


def take(values: torch.Tensor, beams: torch.Tensor) -> torch.Tensor:
    """Select from ``values`` [requests, beams, ...] the ``beams`` int64[requests, chosen]."""
    return values[torch.arange(len(values), device=values.device)[:, None], beams]


def pack(beams: torch.Tensor, chances: torch.Tensor, source: int) -> list[Packed]:
    """Make a tree of each request's beams. Equal prefixes become one node.

    A node's score is the product of ``chances`` along its path. The chances of siblings are scaled down if their sum exceeds 1.
    Makes three copies to the host.

    Args:
        beams: int64[requests, width, length], with ``PAD`` after the ends of beams.
        chances: float64 of the same shape, in 0..1, conditional acceptance probabilities; equal for equal prefixes.
        source: the bit that marks the nodes.
    """
    requests, width, length = beams.shape
    if not length:
        return [Packed(DraftTree.empty(), np.empty(0, np.int64))] * requests
    same = _same_prefix(beams)
    match = same.int().argmax(2)  # argmax of equal values is the first: the first beam with each prefix
    numbers = torch.arange(width, device=beams.device)[:, None]
    nodes = (match == numbers) & (beams != PAD)
    above = torch.cat([torch.ones_like(same[..., :1]), same[..., :-1]], 3)
    siblings = (above * (chances * nodes)[:, None]).sum(2)
    scores = (chances / siblings.clamp(min=1.0)).cumprod(2)
    order = _by_depth(scores.masked_fill(~nodes, -1.0)).argsort(dim=1, descending=True, stable=True)
    parents = match[..., :-1] + width * torch.arange(length - 1, device=beams.device)  # places by depth, then by beam
    parents = torch.cat([torch.zeros_like(match[..., :1]), parents], 2)
    numbered = order.argsort(1).gather(1, _by_depth(parents))
    numbered[:, :width] = -1  # parents of the first level: the root
    places = order % width * length + order // width
    columns = torch.stack([_by_depth(beams).gather(1, order), numbered.gather(1, order), places]).cpu().numpy()
    values = _by_depth(scores).gather(1, order).float().cpu().numpy()
    counts = nodes.flatten(1).sum(1).tolist()
    return [_packed(columns[:, row, :count], values[row, :count], source) for row, count in enumerate(counts)]


def _packed(columns: npt.NDArray[np.int64], scores: npt.NDArray[np.float32], source: int) -> Packed:
    tokens, parents, places = columns
    sources = np.full(len(tokens), source, np.uint32)
    return Packed(DraftTree(tokens.astype(np.int32), parents.astype(np.int32), scores, sources), places)


def _same_prefix(beams: torch.Tensor) -> torch.Tensor:
    """bool[requests, beams, beams, length]: whether two beams have equal prefixes up to each place."""
    return (beams[:, :, None] == beams[:, None]).int().cumprod(3).bool()


def _by_depth(values: torch.Tensor) -> torch.Tensor:
    """Flatten ``values`` [requests, beams, length] to [requests, length * beams], by depth."""
    return values.transpose(1, 2).flatten(1)
