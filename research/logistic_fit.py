"""Fits logistic regression with Newton's method."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
_STEPS, _TOLERANCE = 50, 1e-9


def fit_logistic(features: Floats, taken: npt.NDArray[np.bool_], ridge: float) -> Floats:
    """Return float64[k]: weights of ``features`` (float64[n, k]) with the largest likelihood of ``taken`` (bool[n]).

    ``ridge``: precision of a prior at 0 for each weight except the first. It must be above 0, so that the solution is
    unique.
    """
    penalty = np.full(features.shape[1], ridge)
    penalty[0] = min(ridge, 1e-6)
    weights = np.zeros(features.shape[1])
    for _ in range(_STEPS):
        chances = probabilities(features @ weights)
        gradient = features.T @ (taken - chances) - penalty * weights
        hessian = (features * (chances * (1 - chances))[:, None]).T @ features + np.diag(penalty)
        step = np.linalg.solve(hessian, gradient)
        step *= min(1.0, 2.0 / max(float(np.abs(step).max()), 1e-12))  # far from the optimum a full step may overshoot
        weights += step
        if float(np.abs(step).max()) < _TOLERANCE:
            break
    return weights


def probabilities(log_odds: Floats) -> Floats:
    """Return float64[n], the probabilities of rows."""
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(log_odds, -40, 40))), np.float64)


def log_loss(chances: Floats, taken: npt.NDArray[np.bool_]) -> float:
    """Return the mean negative log-likelihood, in nats."""
    if not len(chances):
        return 0.0
    return float(-np.log(np.clip(np.where(taken, chances, 1 - chances), 1e-12, 1)).mean())
