"""Verification ``rejection``: speculative sampling on chains that were sampled from a known distribution.

Let q be the drafter's distribution and p the target's. A token x sampled from q is accepted with probability min(1, p(x) /
q(x)). The first token that is not accepted is replaced by a sample from the normalised residual (p - q)+. The rest of the
chain is dropped. The result has the distribution p for any q, if

- q is the distribution that x was sampled from, so temperature, top-k, top-p, min-p and masks are applied to q;
- coins and draws are independent of the chain and of each other (``SeededUniforms`` beside ``SeededNoise``);
- whether a token is verified is decided before it is sampled, so no token is cut off because of its value.

Sources: Leviathan, Kalman, Matias: Fast Inference from Transformers via Speculative Decoding (2023), algorithm 1 and appendix
A.1; Chen et al.: Accelerating Large Language Model Decoding with Speculative Sampling (2023), algorithm 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from suffolk.datastore.errors import InvalidArgument

TOLERANCE = 1e-6
"""How far a distribution's sum may be from 1. Results are still exact, because distributions are divided by their sums."""


@dataclass(frozen=True, slots=True)
class VerifiedChain:
    """The result of a chain's verification.

    Attributes:
        accepted: the number of accepted tokens, from the first on.
        token: the token that follows the accepted ones.
    """

    accepted: int
    token: int


def verify_chain(
    tokens: npt.NDArray[np.integer[Any]],
    drafter: torch.Tensor | None,
    target: torch.Tensor,
    coins: torch.Tensor,
    draws: torch.Tensor,
) -> VerifiedChain:
    """Accept the longest prefix of the chain that speculative sampling allows, and sample the token after it.

    A pure function, safe in any thread. The tensors are on any one device. The host receives one small copy.

    Args:
        tokens: integers[k], the chain; k may be 0.
        drafter: float64[k, vocab], the distribution of each token; None if the chain was not sampled (one-hot).
        target: float64[k + 1, vocab], the target's processed distribution at each place of the chain and after it.
        coins: float64[k] or more, uniforms in (0, 1) that decide on the tokens.
        draws: float64[k + 1] or more, uniforms in (0, 1) for the token that follows; one of them is used.

    Raises:
        InvalidArgument: shapes do not fit; or a distribution has NaN, negative values or a sum other than 1; or a token is not
            in the vocabulary, or has probability 0 in the drafter's distribution.
    """
    size, vocab = _checked_shapes(tokens, drafter, target, coins, draws)
    chain = torch.from_numpy(np.array(tokens, np.int64)).to(target.device)[:, None]
    sums = target.sum(-1)
    target_prob = target[:size].gather(-1, chain)[:, 0] / sums[:size]
    draft_prob, drafter_sums = torch.ones_like(target_prob), sums.new_empty(0)
    if drafter is not None:
        drafter_sums = drafter.sum(-1)
        draft_prob = drafter.gather(-1, chain)[:, 0] / drafter_sums
    accepted = (coins[:size] < acceptance(target_prob, draft_prob)).long().cumprod(0).sum()
    following = _at(target, accepted) / _at(sums, accepted)
    if size:
        last = accepted.clamp(max=size - 1)
        if drafter is None:
            rejected = (torch.arange(vocab, device=target.device) == _at(chain, last)).to(torch.float64)
        else:
            rejected = _at(drafter, last) / _at(drafter_sums, last)
        following = torch.where(accepted < size, residual(following, rejected), following)
    token = inverse_cdf_sample(following, _at(draws, accepted))
    found = [torch.stack([accepted, token]).to(torch.float64), sums, target.amin(-1), draft_prob, drafter_sums]
    if drafter is not None:
        found.append(drafter.amin(-1))
    host = torch.cat(found).cpu().numpy()
    _check_distributions("the target's", host[2 : size + 3], host[size + 3 : 2 * size + 4])
    _check_distributions("the drafter's", *np.split(host[3 * size + 4 :], 2))
    _check_draft_probs(tokens, host[2 * size + 4 : 3 * size + 4])
    return VerifiedChain(int(host[0]), int(host[1]))


def acceptance(target_prob: torch.Tensor, draft_prob: torch.Tensor) -> torch.Tensor:
    """The probability that a token is accepted: min(1, p / q), from its probabilities p and q > 0."""
    return (target_prob / draft_prob).clamp(max=1.0)


def residual(target: torch.Tensor, drafter: torch.Tensor) -> torch.Tensor:
    """float64[vocab], the distribution of a rejected token's replacement: (p - q)+, normalised; p if (p - q)+ is 0.

    (p - q)+ is 0 everywhere only if p and q are equal up to rounding. Their difference is then tiny, and so is the chance of
    a rejection. So sampling from p changes the result by no more than rounding.
    """
    excess = (target - drafter).clamp(min=0.0)
    mass = excess.sum(-1, keepdim=True)
    return torch.where(mass > 0, excess / mass, target)


def inverse_cdf_sample(distribution: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """int64, the token whose part of 0..1 contains ``uniform``. It never has probability 0, however a device rounds its sums."""
    reached = distribution.cumsum(-1).masked_fill(distribution <= 0, 0.0)
    return (reached > uniform * reached.amax(-1)).to(torch.int8).argmax(-1)


def sound_rows(distributions: torch.Tensor, vocab: int) -> int:
    """The number of leading rows that are distributions over ``vocab`` tokens as ``verify_chain`` needs them."""
    if distributions.dtype != torch.float64 or distributions.ndim != 2 or distributions.shape[1] != vocab:
        return 0
    sound = ((distributions.sum(-1) - 1).abs() <= TOLERANCE) & (distributions.amin(-1) >= 0)
    return int(sound.long().cumprod(0).sum())


def _at(rows: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """``rows[index]`` for an index on the device; plain indexing would copy the index to the host."""
    return rows.index_select(0, index[None])[0]


def _checked_shapes(
    tokens: npt.NDArray[np.integer[Any]],
    drafter: torch.Tensor | None,
    target: torch.Tensor,
    coins: torch.Tensor,
    draws: torch.Tensor,
) -> tuple[int, int]:
    size, vocab = len(tokens), target.shape[1] if target.ndim == 2 else 0
    for name, rows, needed in (("target", target, size + 1), ("drafter", drafter, size)):
        if rows is not None and (rows.shape != (needed, vocab) or vocab == 0 or rows.dtype != torch.float64):
            raise InvalidArgument(
                f"the {name}'s distribution is {rows.dtype} of shape {tuple(rows.shape)}; a chain of {size} needs float64 of "
                f"shape [{needed}, vocabulary]"
            )
    for name, uniforms, needed in (("coins", coins, size), ("draws", draws, size + 1)):
        if uniforms.ndim != 1 or len(uniforms) < needed or uniforms.dtype != torch.float64:  # float32 may round up to 1
            raise InvalidArgument(
                f"{name} are {uniforms.dtype} of shape {tuple(uniforms.shape)}; a chain of {size} needs {needed} of float64"
            )
    if size and (tokens.ndim != 1 or tokens.dtype.kind not in "iu" or tokens.min() < 0 or tokens.max() >= vocab):
        raise InvalidArgument(
            f"the chain is {tokens.dtype} with {tokens.ndim} axes and ids {tokens.min()}..{tokens.max()}; "
            f"it must be integers in one axis, ids 0..{vocab - 1}"
        )
    return size, vocab


def _check_distributions(whose: str, sums: npt.NDArray[np.float64], least: npt.NDArray[np.float64]) -> None:
    sound = (np.abs(sums - 1) <= TOLERANCE) & (least >= 0)  # NaN is neither
    if not sound.all():
        row = int(np.argmin(sound))
        raise InvalidArgument(
            f"{whose} distribution in row {row} sums to {sums[row]} and its least value is {least[row]}; it must be a softmax "
            f"in float64: a sum within {TOLERANCE} of 1, no negative value, no NaN"
        )


def _check_draft_probs(tokens: npt.NDArray[np.integer[Any]], draft_prob: npt.NDArray[np.float64]) -> None:
    if not (draft_prob > 0).all():
        row = int(np.argmin(draft_prob > 0))
        raise InvalidArgument(
            f"token {tokens[row]} in row {row} of the chain has probability 0 in the drafter's distribution; give the "
            "distribution after top-k, top-p, min-p and masks, or None for a chain that was not sampled"
        )
