"""Tests the verification of drafts against definitions that walk the tree node by node, and the drafts that it refuses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.engine.loop.drafter import SampledChain, tree_of
from suffolk.serving.decoding.engine.sampling.seeded_noise import SeededNoise, SeededUniforms
from suffolk.serving.decoding.engine.sampling.verification.match import accept
from suffolk.serving.decoding.engine.sampling.verification.rejection import (
    VerifiedChain,
    inverse_cdf_sample,
    residual,
    verify_chain,
)
from suffolk.serving.decoding.engine.sampling.verification.typical import typical_path
from tests.serving.decoding.engine.test_decoding_sampling import GOLDEN, MASK, splitmix
from tests.support.drafters import random_tree, tree

CPU = torch.device("cpu")


def children(draft: DraftTree, node: int) -> dict[int, int]:
    """The first child of ``node`` with each token."""
    found: dict[int, int] = {}
    for child in range(len(draft)):
        if draft.parents[child] == node:
            found.setdefault(int(draft.tokens[child]), child)
    return found


def naive_accept(draft: DraftTree, drawn: npt.NDArray[np.int64]) -> list[int]:
    path: list[int] = []
    while (
        child := children(draft, path[-1] if path else -1).get(int(drawn[(path[-1] if path else -1) + 1]))
    ) is not None:
        path.append(child)
    return path


@pytest.mark.parametrize("size", [0, 1, 2, 7, 60])
@pytest.mark.parametrize("vocab", [2, 3, 8])
def test_accept_walks_as_the_definition_does(size: int, vocab: int) -> None:
    rng = np.random.default_rng(size * 10 + vocab)
    for _ in range(20):
        draft = random_tree(rng, size, vocab)
        drawn = rng.integers(0, vocab, size + 1)
        assert accept(draft.tokens, draft.parents, drawn).tolist() == naive_accept(draft, drawn)


def test_accept_of_the_largest_trees() -> None:
    draft = random_tree(np.random.default_rng(0), 1024, 3)
    drawn = np.random.default_rng(1).integers(0, 3, 1025)
    assert accept(draft.tokens, draft.parents, drawn).tolist() == naive_accept(draft, drawn)
    deep = np.arange(1024, dtype=np.int32)
    drawn = np.append(deep, 0).astype(np.int64)
    assert accept(deep, deep - 1, drawn).tolist() == deep.tolist()


def naive_typical(draft: DraftTree, distributions: npt.NDArray[np.float64], epsilon: float, delta: float) -> list[int]:
    def paths(node: int, worth: float) -> list[tuple[int, float, list[int]]]:
        distribution = distributions[node + 1]
        entropy = -sum(value * math.log(value) for value in distribution if value > 0)
        found: list[tuple[int, float, list[int]]] = [(0, worth, [])]
        for token, child in children(draft, node).items():
            if distribution[token] >= min(epsilon, delta * math.exp(-entropy)):
                below = paths(child, worth + math.log(distribution[token]))
                found += [(length + 1, value, [child, *path]) for length, value, path in below]
        return found

    return max(paths(-1, 0.0), key=lambda each: each[:2])[2]


@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 0.09), (0.09, 0.3), (0.5, 0.9), (1.0, 1.0), (1e-9, 1e-9)])
def test_typical_takes_the_longest_then_likeliest_acceptable_path(epsilon: float, delta: float) -> None:
    rng = np.random.default_rng(4)
    lengths = set()
    for _ in range(40):
        draft = random_tree(rng, 12, 4)
        distributions = rng.dirichlet(np.full(4, 0.6), 13)
        found = typical_path(draft.tokens, draft.parents, torch.from_numpy(distributions), epsilon, delta).tolist()
        assert found == naive_typical(draft, distributions, epsilon, delta)
        lengths.add(len(found))
    assert len(lengths) > 1


@pytest.mark.parametrize("vocab", [2, 5])
def test_typical_equals_match_where_laws_are_one_hot(vocab: int) -> None:
    rng = np.random.default_rng(vocab)
    for _ in range(60):
        draft = random_tree(rng, 20, vocab)  # equal siblings too
        drawn = rng.integers(0, vocab, 21)
        distributions = torch.eye(vocab)[torch.from_numpy(drawn)]
        assert np.array_equal(
            typical_path(draft.tokens, draft.parents, distributions, 0.3, 0.09),
            accept(draft.tokens, draft.parents, drawn),
        )


def test_typical_of_an_empty_tree_and_of_nan() -> None:
    empty = DraftTree.empty()
    assert len(typical_path(empty.tokens, empty.parents, torch.ones(1, 1), 0.3, 0.09)) == 0
    one = tree([0], [-1])
    assert len(typical_path(one.tokens, one.parents, torch.full((2, 3), math.nan), 0.3, 0.09)) == 0


def test_typical_needs_a_row_for_each_node() -> None:
    one = tree([0], [-1])
    with pytest.raises(InvalidArgument, match="a tree of 1 nodes needs 2 rows"):
        typical_path(one.tokens, one.parents, torch.ones(1, 3), 0.3, 0.09)


P = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3]], dtype=torch.float64)
Q = torch.tensor([[0.6, 0.3, 0.1]], dtype=torch.float64)


def uniform(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def judged(token: int, drafter: torch.Tensor | None, coin: float, draw: float) -> tuple[int, int]:
    verdict = verify_chain(np.array([token]), drafter, P, uniform(coin), uniform(draw, draw))
    return verdict.accepted, verdict.token


def test_a_token_is_kept_with_the_ratio_of_its_probabilities() -> None:
    assert judged(0, Q, 0.833, 0.05) == (1, 0)  # 0.5 / 0.6
    assert judged(0, Q, 0.834, 0.05) == (0, 2)  # the residual is all on token 2
    assert judged(1, Q, 0.999, 0.65) == (1, 1)
    assert judged(2, Q, 0.999, 0.75) == (1, 2)
    assert judged(0, None, 0.499, 0.05) == (1, 0)
    assert judged(0, None, 0.501, 0.599) == (0, 1)  # 0.3 / 0.5
    assert judged(0, None, 0.501, 0.601) == (0, 2)


def test_an_empty_chain_draws_from_the_target() -> None:
    for drafter in (None, torch.empty(0, 3, dtype=torch.float64)):
        assert verify_chain(np.empty(0, np.int64), drafter, P[:1], uniform(), uniform(0.81)) == VerifiedChain(0, 2)


def test_no_residual_is_left_where_the_laws_differ_by_rounding_alone() -> None:
    distribution = torch.tensor([0.7, 0.3, 0.0], dtype=torch.float64)
    higher = torch.tensor([0.7, 0.3 + 1e-16, 0.0], dtype=torch.float64)
    assert torch.equal(residual(distribution, higher), distribution)
    assert torch.equal(residual(distribution, distribution), distribution)
    target = torch.stack([distribution, distribution])
    drafter = higher[None] * (1 + 5e-7)  # within the tolerance: divided by its sum
    verdict = verify_chain(np.array([1]), drafter, target, uniform(1 - 2**-53), uniform(0.5, 0.9))
    assert verdict in (VerifiedChain(1, 1), VerifiedChain(0, 0))


def test_inverse_cdf_sample_never_takes_a_token_without_probability() -> None:
    distribution = torch.tensor([0.0, 0.25, 0.0, 0.75, 0.0], dtype=torch.float64)
    ends = [2.0**-53, 0.25 - 1e-12, 0.25 + 1e-12, 1 - 2.0**-53]
    assert [int(inverse_cdf_sample(distribution, uniform(each)[0])) for each in ends] == [1, 1, 3, 3]


def changed(distribution: torch.Tensor, row: int, column: int, value: float) -> torch.Tensor:
    distribution = distribution.clone()
    distribution[row, column] = value
    return distribution


@pytest.mark.parametrize(
    ("tokens", "drafter", "target", "message"),
    [
        ([0], changed(Q, 0, 0, 0.7), P, "the drafter's distribution in row 0 sums to 1.1"),
        ([0], changed(Q, 0, 0, math.nan), P, "the drafter's distribution in row 0 sums to nan"),
        ([0], changed(Q, 0, 1, math.inf), P, "the drafter's distribution in row 0 sums to inf"),
        (
            [0],
            torch.tensor([[1.2, -0.1, -0.1]]).double(),
            P,
            "in row 0 sums to 1.0.* and its least value is -0.1",
        ),
        ([0], Q * 0, P, "the drafter's distribution in row 0 sums to 0"),
        ([2], torch.tensor([[0.6, 0.4, 0.0]]).double(), P, "token 2 in row 0 of the chain has probability 0"),
        ([0], Q, changed(P, 1, 2, math.nan), "the target's distribution in row 1 sums to nan"),
        ([0], None, changed(P, 1, 2, 0.4), "the target's distribution in row 1 sums to 1.1"),
        ([0], Q.float(), P, "the drafter's distribution is torch.float32 of shape \\(1, 3\\)"),
        ([0], Q[:, :2], P, "the drafter's distribution is .* of shape \\(1, 2\\)"),
        ([0, 1], Q, P, "the target's distribution is .* a chain of 2 needs float64 of shape \\[3, vocabulary\\]"),
        ([3], Q, P, "ids 3..3; it must be integers in one axis, ids 0..2"),
        ([-1], None, P, "ids -1..-1"),
        ([0.5], None, P, "the chain is float64 with 1 axes"),
        ([[0]], None, P, "the chain is int64 with 2 axes"),
        ([], None, P[0], "the target's distribution is torch.float64 of shape \\(3,\\)"),
        ([], None, P[:1, :0], "the target's distribution is torch.float64 of shape \\(1, 0\\)"),
    ],
)
def test_unsound_distributions_are_refused(
    tokens: list[Any], drafter: torch.Tensor | None, target: torch.Tensor, message: str
) -> None:
    half = uniform(*[0.5] * 4)
    with pytest.raises(InvalidArgument, match=message):
        verify_chain(np.array(tokens), drafter, target, half, half)


def test_uniforms_must_be_enough_and_in_float64() -> None:
    with pytest.raises(InvalidArgument, match="coins are torch.float64 of shape \\(0,\\); a chain of 1 needs 1"):
        verify_chain(np.array([0]), Q, P, uniform(), uniform(0.5, 0.5))
    with pytest.raises(InvalidArgument, match="draws are torch.float32 of shape"):
        verify_chain(np.array([0]), Q, P, uniform(0.5), uniform(0.5, 1 - 2**-53).float())


STREAMS = {"coins": 0x6A09E667F3BCC908, "draws": 0xBB67AE8584CAA73B}


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("seed", [0, 12345, 2**63 - 1])
def test_uniforms_are_the_documented_hash(stream: str, seed: int) -> None:
    positions = [0, 7, 100_000]
    found = getattr(SeededUniforms(seed, CPU), stream)(torch.tensor(positions))
    for value, position in zip(found.tolist(), positions, strict=True):
        bits = splitmix(splitmix(seed ^ STREAMS[stream]) + (position + 1) * GOLDEN & MASK) >> 12
        assert value == (bits + 0.5) / 2**52


def test_uniforms_are_uniform_and_independent_of_each_other_and_of_the_noise() -> None:
    positions = torch.arange(5_000)
    uniforms = SeededUniforms(1, CPU)
    values = {name: getattr(uniforms, name)(positions).numpy() for name in STREAMS}
    values["next seed"] = SeededUniforms(2, CPU).coins(positions).numpy()
    values["next position"] = np.roll(values["coins"], 1)
    values["noise"] = np.exp(-np.exp(-SeededNoise(1, 1, CPU).rows(0, len(positions))[:, 0].numpy()))
    for name, each in values.items():
        assert 0 < each.min() < each.max() < 1
        counts = np.histogram2d(values["coins"], each, bins=8, range=((0, 1), (0, 1)))[0]
        if name == "coins":
            assert np.count_nonzero(counts) == 8
            counts = np.diag(counts)
        expected = len(each) / counts.size
        freedom = counts.size - 1
        assert ((counts - expected) ** 2 / expected).sum() < freedom + 4 * math.sqrt(2 * freedom)


def test_a_sampled_chain_is_a_chain_with_a_law_a_node() -> None:
    chain = tree([4, 5], [-1, 0])
    distribution = torch.full((2, 9), 1 / 9)
    assert tree_of(SampledChain(chain, distribution)) is chain
    assert tree_of(chain) is chain
    with pytest.raises(InvalidArgument, match="parents are \\[-1, -1\\]; each must be the node before"):
        SampledChain(tree([4, 5], [-1, -1]), distribution)
    with pytest.raises(InvalidArgument, match="2 nodes need 2 rows"):
        SampledChain(chain, distribution[:1])


@pytest.mark.parametrize(
    ("distribution", "message"),
    [
        (np.full((2, 9), 1 / 9), "type ndarray"),
        (torch.empty(2, 9, device="meta"), "on meta"),
        (torch.full((2, 9), 1 / 9).to_sparse(), "layout torch.sparse_coo"),
        (torch.ones(2, 9, dtype=torch.int64), "torch.int64"),
    ],
)
def test_a_distribution_is_a_tensor_that_can_be_read(distribution: Any, message: str) -> None:
    """Regression: a distribution of another type used to be accepted here, and ended the engine when it was read."""
    with pytest.raises(InvalidArgument, match=message):
        SampledChain(tree([4, 5], [-1, 0]), distribution)
