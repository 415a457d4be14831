"""Collects evidence on retrieved nodes from recorded answers: their features, and whether the answer contains them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.calibration.calibrator import Prior
from suffolk.serving.decoding.drafters.calibration.rescale import knows_noise
from suffolk.serving.decoding.drafters.hybrid.drafter import HybridDrafter
from suffolk.serving.decoding.drafters.retrieval.retrieval_scorer import NO_TOKENS, Ids
from suffolk.serving.decoding.drafters.retrieval.retrieval_source import RetrievalSource
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest, Generated
from suffolk.serving.decoding.engine.sampling.seeded_noise import SeededNoise
from suffolk.serving.decoding.replay.recording import Recording
from suffolk.serving.decoding.replay.replayer import Replayer

Floats = npt.NDArray[np.float64]
TERMS = ("constant", "match", "share", "count", "depth")


@dataclass(frozen=True, slots=True)
class Evidence:
    """Nodes whose parents are on the answer.

    Attributes:
        features: float64[n, 5], one feature for each number of a prior, in the order of ``TERMS``.
        taken: bool[n], whether the answer contains the node.
        noise: float64[n], the sampling noise of the answer (``rescale.py``); 0 if unknown.
    """

    features: Floats
    taken: npt.NDArray[np.bool_]
    noise: Floats

    def log_odds(self, prior: Prior) -> Floats:
        """Return float64[n], the log-odds of ``prior``."""
        return np.asarray(self.features @ np.array([getattr(prior, term) for term in TERMS]), np.float64)


def evidence_of(tree: DraftTree, tokens: Ids, noise: Floats | None = None) -> Evidence:
    """Return the evidence of a source's tree and the next ``tokens``, counted as in csrc/drafting/calibrator.cc.

    ``noise``: float64[n], noise of its nodes.
    """
    features = features_of(tree)
    parent, places, taken = -1, list[npt.NDArray[np.intp]](), list[npt.NDArray[np.bool_]]()
    for token in tokens.tolist():
        children = np.flatnonzero(tree.parents == parent)
        first = np.flatnonzero(tree.tokens[children] == token)[:1]  # the first of equal siblings
        places.append(children)
        taken.append(np.isin(np.arange(len(children)), first))
        if not len(first):
            break
        parent = int(children[first[0]])
    chosen = np.concatenate([*places, np.empty(0, np.intp)]).astype(np.intp)
    noise = np.zeros(len(tree)) if noise is None else noise
    return Evidence(features[chosen], np.concatenate([*taken, np.empty(0, np.bool_)]), noise[chosen])


def features_of(tree: DraftTree) -> Floats:
    """Return float64[n, 5] for all nodes, in the order of ``TERMS``.

    See ``Calibrator::chance`` in csrc/drafting/calibrator.cc.
    """
    counts = (
        np.ones(len(tree))
        if tree.counts is None or not len(tree.counts)
        else np.maximum(1.0, tree.counts.astype(float))
    )
    # -1 selects the last, the count of the match
    above = np.append(counts, max(1.0, float(tree.match_count)))[tree.parents]
    taken = np.minimum(counts / above, 1.0) * above
    columns = (
        np.ones(len(tree)),
        np.full(len(tree), np.log(max(1.0, float(tree.match_length)))),
        np.log((taken + 0.3) / (above - taken + 0.3)),
        np.log(above),
        np.log(tree.depths().astype(float)),
    )
    return np.stack(columns, axis=1)


def gather(
    recordings: Sequence[Recording],
    sources: Sequence[RetrievalSource],
    nodes: int,
    predictions: Sequence[Ids | None] | None = None,
) -> dict[str, list[Evidence]]:
    """Return for each source the evidence of each recording.

    All ``sources`` draft for trees of ``nodes`` nodes, which are all verified. ``predictions``: the predicted text of
    each recording; None if there are none.
    """
    watched = [_Watched(source, source.name) for source in sources]
    replayer = Replayer(HybridDrafter(watched), nodes)
    found: dict[str, list[Evidence]] = {each.name: [] for each in watched}
    for recording, prediction in zip(recordings, predictions or [None] * len(recordings), strict=True):
        replayer.replay(recording, prediction)
        for each in watched:
            found[each.name].append(each.take())
    return found


def join(parts: Sequence[Evidence]) -> Evidence:
    """Join the evidence of several recordings."""
    return Evidence(
        np.concatenate([np.empty((0, len(TERMS))), *(part.features for part in parts)]),
        np.concatenate([np.empty(0, np.bool_), *(part.taken for part in parts)]),
        np.concatenate([np.empty(0), *(part.noise for part in parts)]),
    )


class _Found(NamedTuple):
    """The tree for a request's text with ``path`` appended."""

    path: Ids
    tree: DraftTree


@dataclass(slots=True)
class _Watched(RetrievalSource):
    """A source that records whether the answer contains the nodes it found."""

    source: RetrievalSource
    name: str
    requests: dict[int, DraftRequest] = field(default_factory=dict)
    drafts: dict[int, list[_Found]] = field(default_factory=dict)
    evidence: list[Evidence] = field(default_factory=list)

    def take(self) -> Evidence:
        found, self.evidence = join(self.evidence), []
        return found

    def draft(self, requests: Sequence[DraftRequest]) -> Sequence[Sequence[DraftTree]]:
        found = self.source.draft(requests)
        for request, trees in zip(requests, found, strict=True):
            self.requests[request.request_id] = request
            self.drafts[request.request_id] = [_Found(NO_TOKENS, tree) for tree in trees]
        return found

    def draft_after(self, requests: Sequence[DraftRequest], paths: Sequence[Sequence[Ids]]) -> list[list[DraftTree]]:
        found = self.source.draft_after(requests, paths)
        for request, each, trees in zip(requests, paths, found, strict=True):
            self.drafts[request.request_id] += [_Found(path, tree) for path, tree in zip(each, trees, strict=True)]
        return found

    def observe(self, generated: Generated) -> None:
        for request_id, tokens in generated.items():
            request = self.requests.pop(request_id, None)
            for draft in self.drafts.pop(request_id, ()):
                depth = len(draft.path)
                if request is not None and len(tokens) > depth and np.array_equal(tokens[:depth], draft.path):
                    noise = _noise_of(request, draft) if knows_noise(request.settings) else None
                    self.evidence.append(evidence_of(draft.tree, tokens[depth:], noise))
        self.source.observe(generated)

    def release(self, request_id: int) -> None:
        self.requests.pop(request_id, None)
        self.drafts.pop(request_id, None)
        self.source.release(request_id)

    def stats(self) -> dict[str, float]:
        return self.source.stats()

    def close(self) -> None:
        self.source.close()


def _noise_of(request: DraftRequest, draft: _Found) -> Floats:
    """Return float64[n], the noise of the target's samples at each node."""
    positions = len(request.tokens) + len(draft.path) + draft.tree.depths().astype(np.int64) - 1
    noise = SeededNoise(request.settings.seed, 0, torch.device("cpu"))
    tokens = torch.from_numpy(draft.tree.tokens.astype(np.int64))
    return np.asarray(noise.at(torch.from_numpy(positions), tokens).numpy(), np.float64)
