"""Verification ``typical`` is LOSSY: the text depends on the draft and does not follow the target's distribution.

A drafted token is acceptable if the target gives it at least this probability: min(epsilon, delta * exp(-entropy(p))), where p is
the target's distribution. So the less certain the target is, the less probable a token may be.
Sources: Cai et al.: Medusa (2024), section 2.3.1; Zhang et al.: Recurrent Drafter (2024), section 4.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from suffolk.datastore.errors import InvalidArgument


def typical_path(
    tokens: npt.NDArray[np.int32],
    parents: npt.NDArray[np.int32],
    probabilities: torch.Tensor,
    epsilon: float,
    delta: float,
    allowed: npt.NDArray[np.bool_] | None = None,
) -> npt.NDArray[np.int64]:
    """LOSSY: int64[k], the longest path of acceptable nodes from the top down; among equally long paths the most probable.

    The first of equal siblings is used, as in ``match``. At temperature 0, where all distributions are one-hot,
    ``match`` gives the same path. A row with NaN accepts nothing.

    Args:
        tokens: int32[n], the tree's tokens.
        parents: int32[n], each node's parent; -1 for a child of the context.
        probabilities: float[n + 1, vocab], the target's processed distribution after the context (row 0) and after each node,
            on any device.
        epsilon: a token of at least this probability is acceptable.
        delta: a token of at least this share of exp(-entropy) is acceptable too.
        allowed: bool[n], the nodes that may be accepted; None for all.

    Raises:
        InvalidArgument: ``probabilities`` has another number of rows.
    """
    if probabilities.ndim != 2 or len(probabilities) != len(tokens) + 1:
        raise InvalidArgument(
            f"probabilities has shape {tuple(probabilities.shape)}; a tree of {len(tokens)} nodes needs {len(tokens) + 1} rows"
        )
    distributions = probabilities.to(torch.float64)
    thresholds = (delta * (-torch.special.entr(distributions).sum(-1)).exp()).clamp(max=epsilon)
    rows = torch.from_numpy(parents + 1).long().to(distributions.device)
    ids = tokens.astype(np.int64)  # a copy: torch warns of read-only arrays
    columns = torch.from_numpy(ids).to(distributions.device)
    likely, least = torch.stack([distributions[rows, columns], thresholds[rows]]).cpu().numpy()  # one copy to the host
    acceptable = (likely >= least) & _first_of_equals(tokens, parents)
    if allowed is not None:
        acceptable &= allowed
    log_prob = np.zeros(len(tokens) + 1)  # by row: log probability of the path to it
    level, best = np.zeros(len(tokens) + 1, np.bool_), -1
    level[0] = True
    while True:  # one round per level
        nodes = np.flatnonzero(acceptable & level[parents + 1])
        if not len(nodes):
            return _path_to(best, parents)
        log_prob[nodes + 1] = log_prob[parents[nodes] + 1] + np.log(likely[nodes])
        best = int(nodes[np.argmax(log_prob[nodes + 1])])
        level[:] = False
        level[nodes + 1] = True


def _first_of_equals(tokens: npt.NDArray[np.int32], parents: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    first = np.zeros(len(tokens), np.bool_)
    first[np.unique((parents.astype(np.int64) << 32) | tokens, return_index=True)[1]] = True
    return first


def _path_to(node: int, parents: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    path: list[int] = []
    while node >= 0:
        path.append(node)
        node = int(parents[node])
    return np.array(path[::-1], np.int64)
