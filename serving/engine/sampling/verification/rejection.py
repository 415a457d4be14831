"""Verification ``rejection``: speculative sampling on chains that were drawn from a known law.

Leviathan, Kalman, Matias: Fast Inference from Transformers via Speculative Decoding (2023), algorithm 1 and appendix A.1;
Chen et al.: Accelerating Large Language Model Decoding with Speculative Sampling (2023), algorithm 2. A token x drawn from q
is kept with probability min(1, p(x) / q(x)); the first token that is not kept is replaced by a draw from the residual
(p - q)+, normalised, and the rest of the chain is dropped. What comes out follows p, whatever q is, if

- q is the law that x really was drawn from: after temperature, cuts and masks, not before;
- the coins and draws are independent of the chain and of each other (``KeyedUniforms`` beside ``KeyedNoise``);
- the chain was never shortened in view of the tokens cut off: whether a token is verified is decided before it is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from suffolk.datastore.errors import InvalidArgument

TOLERANCE = 1e-6
"""How far a law's sum may be from 1. Laws are divided by their sums, so that this is a check, not an error of the result."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a chain.

    Attributes:
        accepted: how many of its tokens are kept, from the first on.
        token: the token that follows them.
    """

    accepted: int
    token: int


def verify_chain(
    tokens: npt.NDArray[np.integer[Any]],
    drafter: torch.Tensor | None,
    target: torch.Tensor,
    coins: torch.Tensor,
    draws: torch.Tensor,
) -> Verdict:
    """Keep the longest first part of the chain that speculative sampling accepts, and draw the token after it.

    Args:
        tokens: integers[k], the chain; k may be 0.
        drafter: float64[k, vocab], the law each token was drawn from; None if the chain was not drawn (its law is one-hot).
        target: float64[k + 1, vocab], the target's processed law at each place of the chain and behind it.
        coins: float64[k] or more, uniforms in (0, 1) that decide on the tokens.
        draws: float64[k + 1] or more, uniforms in (0, 1) for the token that follows; one of them is used.

    The tensors are on one device, any; one small copy to the host. A pure function, safe in any thread.

    Raises:
        InvalidArgument: shapes do not fit; a law has NaN, negative values or a sum other than 1; a token is not in the
            vocabulary, or has probability 0 in the law it is said to be drawn from.
    """
    size, vocab = _checked_shapes(tokens, drafter, target, coins, draws)
    chain = torch.from_numpy(np.array(tokens, np.int64)).to(target.device)[:, None]
    sums = target.sum(-1)
    wanted = target[:size].gather(-1, chain)[:, 0] / sums[:size]
    proposed, drafter_sums = torch.ones_like(wanted), sums.new_empty(0)
    if drafter is not None:
        drafter_sums = drafter.sum(-1)
        proposed = drafter.gather(-1, chain)[:, 0] / drafter_sums
    kept = coins[:size] < acceptance(wanted, proposed)
    accepted = kept.long().cumprod(0).sum()
    law = _at(target, accepted) / _at(sums, accepted)
    if size:
        last = accepted.clamp(max=size - 1)
        if drafter is None:
            rejected = (torch.arange(vocab, device=target.device) == _at(chain, last)).to(torch.float64)
        else:
            rejected = _at(drafter, last) / _at(drafter_sums, last)
        law = torch.where(accepted < size, residual(law, rejected), law)
    token = choose(law, _at(draws, accepted))
    outcome = torch.stack([accepted, token]).to(torch.float64)
    found = [outcome, sums, target.amin(-1), proposed, drafter_sums]
    if drafter is not None:
        found.append(drafter.amin(-1))
    host = torch.cat(found).cpu().numpy()
    _check_laws("the target's", host[2 : size + 3], host[size + 3 : 2 * size + 4])
    _check_laws("the drafter's", *np.split(host[3 * size + 4 :], 2))
    _check_proposed(tokens, host[2 * size + 4 : 3 * size + 4])
    return Verdict(int(host[0]), int(host[1]))


def acceptance(wanted: torch.Tensor, proposed: torch.Tensor) -> torch.Tensor:
    """The probability that a token is kept: min(1, p / q), from its probability under target and drafter (above 0)."""
    return (wanted / proposed).clamp(max=1.0)


def residual(target: torch.Tensor, drafter: torch.Tensor) -> torch.Tensor:
    """float64[vocab], the law of the token in place of a rejected one: (p - q)+, normalised; p where nothing is left of it.

    With exact sums a rejection leaves mass: where one token has p < q, another has p > q. None is left only if p and q differ
    by rounding. A rejection is then as unlikely as that difference is small, so to draw from p itself moves the result's law
    by no more than the rounding has already.
    """
    excess = (target - drafter).clamp(min=0.0)
    mass = excess.sum(-1, keepdim=True)
    return torch.where(mass > 0, excess / mass, target)


def choose(law: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """int64, the token whose part of 0..1 holds ``uniform``; never one without probability, however a device rounds its sums."""
    reached = law.cumsum(-1).masked_fill(law <= 0, 0.0)
    return (reached > uniform * reached.amax(-1)).to(torch.int8).argmax(-1)


def sound_rows(laws: torch.Tensor, vocab: int) -> int:
    """How many of the first rows of ``laws`` are laws over ``vocab`` tokens as ``verify_chain`` wants them."""
    if laws.dtype != torch.float64 or laws.ndim != 2 or laws.shape[1] != vocab:
        return 0
    sound = ((laws.sum(-1) - 1).abs() <= TOLERANCE) & (laws.amin(-1) >= 0)
    return int(sound.long().cumprod(0).sum())


def _at(rows: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """``rows[index]`` for an index on the device; the brackets would fetch it to the host."""
    return rows.index_select(0, index[None])[0]


def _checked_shapes(
    tokens: npt.NDArray[np.integer[Any]],
    drafter: torch.Tensor | None,
    target: torch.Tensor,
    coins: torch.Tensor,
    draws: torch.Tensor,
) -> tuple[int, int]:
    size, vocab = len(tokens), target.shape[1] if target.ndim == 2 else 0
    laws = [("the target's law", target, size + 1)] + (
        [] if drafter is None else [("the drafter's law", drafter, size)]
    )
    for name, law, rows in laws:
        if law.shape != (rows, vocab) or vocab == 0 or law.dtype != torch.float64:
            raise InvalidArgument(
                f"{name} is {law.dtype} of shape {tuple(law.shape)}; a chain of {size} needs float64 of shape [{rows}, vocabulary]"
            )
    for name, uniforms, needed in (("coins", coins, size), ("draws", draws, size + 1)):
        if (
            uniforms.ndim != 1 or len(uniforms) < needed or uniforms.dtype != torch.float64
        ):  # in float32 a uniform below 1 may become 1
            raise InvalidArgument(
                f"{name} are {uniforms.dtype} of shape {tuple(uniforms.shape)}; a chain of {size} needs {needed} of float64"
            )
    if size and (tokens.ndim != 1 or tokens.dtype.kind not in "iu" or tokens.min() < 0 or tokens.max() >= vocab):
        raise InvalidArgument(
            f"the chain is {tokens.dtype} with {tokens.ndim} axes and ids {tokens.min()}..{tokens.max()}; "
            f"it must be integers in one axis, ids 0..{vocab - 1}"
        )
    return size, vocab


def _check_laws(whose: str, sums: npt.NDArray[np.float64], least: npt.NDArray[np.float64]) -> None:
    sound = (np.abs(sums - 1) <= TOLERANCE) & (least >= 0)  # NaN is neither
    if not sound.all():
        row = int(np.argmin(sound))
        raise InvalidArgument(
            f"{whose} law in row {row} sums to {sums[row]} and is {least[row]} at least; it must be a softmax in float64: "
            f"a sum within {TOLERANCE} of 1, no negative value, no NaN"
        )


def _check_proposed(tokens: npt.NDArray[np.integer[Any]], proposed: npt.NDArray[np.float64]) -> None:
    if not (proposed > 0).all():
        row = int(np.argmin(proposed > 0))
        raise InvalidArgument(
            f"token {tokens[row]} in row {row} of the chain has probability 0 in the law it is said to be drawn from; "
            f"give the law after all cuts and masks, or None for a chain that was not drawn"
        )
