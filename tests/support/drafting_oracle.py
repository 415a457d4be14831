"""Oracle of csrc/drafting, node by node: calibrator, evidence, merge, known noise, and the table of next tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np
import torch

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.calibration.calibrator import Prior
from suffolk.serving.decoding.engine.sampling.seeded_noise import SeededNoise

Path = tuple[int, ...]
Kind = tuple[int, int, int, int]

EDGES = ((2, 3, 4, 6, 9, 14), (0.02, 0.05, 0.12, 0.25, 0.45, 0.7, 0.95), (2, 8, 64), (2, 3, 5))
"""Bin sizes of match length, share, parent's count and depth."""
STRENGTH = 40.0


class OracleCalibrator:
    """Like ``suffolk.serving.decoding.drafters.calibration.calibrator.Calibrator``, with sparse tables."""

    def __init__(self, prior: Prior, decay: float) -> None:
        self._prior = prior
        self._decay = decay
        self._hits: Counter[tuple[int, ...]] = Counter()
        self._seen: Counter[tuple[int, ...]] = Counter()

    def score(self, tree: DraftTree) -> list[float]:
        chances = []
        for node in range(len(tree)):
            kind, chance = self._kind(tree, node)
            for cell in (kind[:2], kind):
                chance = (self._hits[cell] + STRENGTH * chance) / (self._seen[cell] + STRENGTH)
            chances.append(chance)
        parents = tree.parents.tolist()
        sums: Counter[int] = Counter()
        for parent, chance in zip(parents, chances, strict=True):
            sums[parent] += chance
        scores: list[float] = []
        for parent, chance in zip(parents, chances, strict=True):
            scores.append((1.0 if parent < 0 else scores[parent]) * chance / max(1.0, sums[parent]))
        return scores

    def learn(self, tree: DraftTree, tokens: Sequence[int]) -> list[tuple[float, bool]]:
        """Count the expected and the actual acceptances of nodes whose parents were accepted."""
        if not len(tree):
            return []
        scores = self.score(tree)
        tried, taken = evidence(tree, tokens)
        parents = tree.parents.tolist()
        above = {node: scores[parents[node]] if parents[node] >= 0 else 1.0 for node in tried}
        found = [(scores[node] / above[node], node in taken) for node in tried]
        for table in (self._hits, self._seen):
            for cell in table:
                table[cell] *= self._decay
        for nodes, table in ((tried, self._seen), (taken, self._hits)):
            for node in nodes:
                kind, _ = self._kind(tree, node)
                table[kind] += 1
                table[kind[:2]] += 1
        return found

    def _kind(self, tree: DraftTree, node: int) -> tuple[Kind, float]:
        counts = [1.0] * len(tree) if tree.counts is None else [max(1.0, float(count)) for count in tree.counts]
        parent, depth = int(tree.parents[node]), len(paths(tree)[node])
        above = max(1.0, float(tree.match_count)) if parent < 0 else counts[parent]
        share, match = min(counts[node] / above, 1.0), max(1, tree.match_length)
        bins = [sum(edge <= x for edge in edges) for edges, x in zip(EDGES, (match, share, above, depth), strict=True)]
        taken, prior = share * above, self._prior
        odds = (
            prior.constant + prior.match * np.log(match) + prior.share * np.log((taken + 0.3) / (above - taken + 0.3))
        )
        odds += prior.count * np.log(above) + prior.depth * np.log(depth)
        return (bins[0], bins[1], bins[2], bins[3]), float(1 / (1 + np.exp(-odds)))


def evidence(tree: DraftTree, tokens: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the nodes whose parent's path is a prefix of ``tokens``, and those of them that are the next token of ``tokens``."""
    tried: list[int] = []
    taken: list[int] = []
    node = -1
    for token in tokens:
        children = np.flatnonzero(tree.parents == node)
        tried += children.tolist()
        hits = children[tree.tokens[children] == token]
        if not len(hits):
            break
        node = int(hits[0])
        taken.append(node)
    return tried, taken


def merge(trees: Sequence[DraftTree], max_nodes: int) -> list[tuple[Path, float, int]]:
    """Return path, score and sources of the best ``max_nodes`` paths of all ``trees``, best first.

    Equal scores keep the order of their first appearance.
    """
    marks: Counter[Path] = Counter()
    chances: dict[Path, float] = {}
    for tree in trees:
        for (path, score, source), parent in zip(nodes(tree), tree.parents.tolist(), strict=True):
            above = float(tree.scores[parent]) if parent >= 0 else 1.0
            marks[path] |= source
            chances[path] = max(chances.get(path, 0.0), score / above if above else 0.0)
    found = {(): 1.0}
    for path in chances:
        siblings = sum(chance for other, chance in chances.items() if other[:-1] == path[:-1])
        found[path] = found[path[:-1]] * chances[path] / max(1.0, siblings)
    best = sorted([*found][1:], key=lambda path: -found[path])[:max_nodes]
    return [(path, found[path], marks[path]) for path in best]


def nodes(tree: DraftTree) -> list[tuple[Path, float, int]]:
    """Return path, score and sources of each node."""
    return list(zip(paths(tree), tree.scores.tolist(), tree.sources.tolist(), strict=True))


def paths(tree: DraftTree) -> list[Path]:
    """Return the tokens on the path to each node; the last is the node's own token."""
    found: list[Path] = []
    for token, parent in zip(tree.tokens.tolist(), tree.parents.tolist(), strict=True):
        found.append((*(found[parent] if parent >= 0 else ()), token))
    return found


def drawn_scores(tree: DraftTree, position: int, seed: int, temperature: float) -> list[float]:
    """Return the scores of ``tree``, adjusted by the known noise of its nodes. The root's children are at ``position``."""
    noise = SeededNoise(seed, 0, torch.device("cpu"))
    scores: list[float] = []
    for node, (path, score, _) in enumerate(nodes(tree)):
        parent = int(tree.parents[node])
        above = float(tree.scores[parent]) if parent >= 0 else 1.0
        chance = min(max(score / above if above else 0.0, 1e-6), 1 - 1e-6)
        odds = np.log(chance / (1 - chance))
        drawn = float(noise.at(torch.tensor(position + len(path) - 1), torch.tensor(path[-1])))
        moved = min(temperature, 1.0) * (drawn - np.euler_gamma)
        odds = -0.012 + 1.057 * odds + 0.270 * moved - 0.058 * moved * min(odds, 4.5)
        scores.append((scores[parent] if parent >= 0 else 1.0) / (1 + np.exp(-odds)))
    return scores


class OracleNextTokenTable:
    """Like ``suffolk.datastore._native.NextTokenTable``, but forgets nothing."""

    LIKELY, NOISE, NONE = (0.45, 0.58, 0.65, 1.0), (0.47, 0.45, 0.45, 0.76), (1.05, -0.07, -0.51, -2.19)
    """Three values for each order 1..4: weight of log probabilities, weight of noise, log weight of "no candidate"."""

    def __init__(self) -> None:
        self._distributions: dict[Path, dict[int, float]] = {}

    def learn(self, tokens: Sequence[int], distributions: Sequence[dict[int, float]]) -> None:
        for row, distribution in enumerate(distributions):
            text = tokens[: len(tokens) - len(distributions) + row]
            for order in range(1, min(4, len(text)) + 1):
                self._distributions[tuple(text[-order:])] = distribution

    def __len__(self) -> int:
        return len(self._distributions)

    def chances(self, text: Sequence[int], position: int, seed: int, temperature: float) -> dict[int, float]:
        """Return the probability of each candidate after ``text``, at ``position``."""
        known = [order for order in range(1, min(4, len(text)) + 1) if tuple(text[-order:]) in self._distributions]
        if not known:
            return {}
        distribution, at = self._distributions[tuple(text[-known[-1] :])], known[-1] - 1
        noise = SeededNoise(seed, 0, torch.device("cpu")).at(torch.tensor(position), torch.tensor(list(distribution)))
        moved = min(temperature, 1.0) * (noise.numpy() - np.euler_gamma) if temperature else 0.0
        logs = np.array([max(log, -87.0) if log <= 0 else -87.0 for log in distribution.values()])
        weights = np.exp(self.LIKELY[at] * logs + self.NOISE[at] * moved)
        found = weights / (weights.sum() + np.exp(self.NONE[at]))
        return {token: chance for token, chance in zip(distribution, found.tolist(), strict=True) if chance >= 0.003}

    def draft(
        self, tokens: Sequence[int], position: int, max_depth: int, max_nodes: int, seed: int, temperature: float
    ) -> list[float]:
        """Return the scores of the best ``max_nodes`` paths, best first."""
        open_paths: list[tuple[float, Path]] = [(-1.0, ())]
        scores: list[float] = []
        while open_paths and len(scores) <= max_nodes:
            score, path = heappop(open_paths)
            scores.append(-score)
            if len(path) < max_depth:
                found = self.chances([*tokens, *path], position + len(path), seed, temperature)
                for token, chance in found.items():
                    heappush(open_paths, (score * chance, (*path, token)))
        return scores[1:]
