"""Checks on a generated text that a head reads the layer and the tokens that it was trained on.

A head may read the wrong layer, or pair a token with the wrong hidden state. It then loads and runs, but its drafts are hardly ever
accepted. So its acceptance is compared with the acceptance of the same head shifted by one layer or one token.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from suffolk.datastore.errors import Unsupported
from suffolk.serving.decoding.engine.model.language_model import PREFILL_CHUNK
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.tree_layout import chain

log = logging.getLogger(__name__)

Predict = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""The head's first drafted tokens int64[k], from hidden states float[k, layers, width] of k tokens, and int64[k], the next token
after each of them."""

TOKENS = 128
_START = "The history of the city began when"
_LEAST_HITS = 8
_LEAST_RATE = 0.15
"""Least acceptance of a shifted head that proves a fault. Below it, heads may differ by chance."""
_FAR = 5
"""A head is refused if a shifted reading has more than this many times its acceptance."""


def check_fit(
    name: str,
    target: Target,
    layers: Sequence[int],
    predict: Predict,
    others: Mapping[str, Predict] | None = None,
) -> float:
    """The acceptance of a head's first tokens on a text that the target generates. Takes the time of ``TOKENS`` tokens.

    The acceptance is logged. It is compared with the head shifted by one layer and by one token, in both directions.

    Args:
        layers: the target's layers whose hidden states ``predict`` gets.
        others: other ways to predict with the head, by the fault that a high acceptance would show.

    Raises:
        Unsupported: one of the other ways has more than five times the acceptance. The message names the fault.
    """
    tokens, begin = generated_text(target)
    wanted = {step: [layer + step for layer in layers] for step in (-1, 0, 1)}
    wanted = {step: each for step, each in wanted.items() if each[0] >= 0 and each[-1] <= target.layers}
    union = sorted({layer for each in wanted.values() for layer in each})
    features = _features(target, tokens, union)
    read = {step: features[:, [union.index(layer) for layer in each]] for step, each in wanted.items()}
    ids = torch.from_numpy(tokens).to(target.device)
    ways: dict[str, tuple[torch.Tensor, int, Predict]] = {
        "features look one layer too late": (read.get(-1, features[:0]), 1, predict),
        "features look one layer too early": (read.get(1, features[:0]), 1, predict),
        "tokens look one step too late against features": (read[0], 0, predict),
        "tokens look one step too early against features": (read[0], 2, predict),
    }
    ways |= {words: (read[0], 1, other) for words, other in (others or {}).items()}
    loaded = _hits(ids, begin, read[0], 1, predict)
    found = {words: _hits(ids, begin, *way) for words, way in ways.items() if len(way[0])}
    words, best = max(found.items(), key=lambda each: each[1].mean())
    rate, other_rate = float(loaded.mean()), float(best.mean())
    message = (
        f"{name}: {words}: acceptance {rate:.0%} instead of {other_rate:.0%} on {len(loaded)} tokens of {target.name}"
    )
    if best.sum() >= _LEAST_HITS and other_rate > max(_LEAST_RATE, _FAR * rate):
        raise Unsupported(f"{message}; correct its config, or use the target that it was trained for")
    if best.sum() > loaded.sum() + 3 * float(np.sqrt(best.sum() + loaded.sum())):
        log.info("%s", message)
    else:
        log.info("%s: acceptance of first tokens %.0f %% on a text of %s", name, 100 * rate, target.name)
    return rate


def generated_text(target: Target) -> tuple[np.ndarray, int]:
    """int64[n], a fixed prompt with the target's greedy continuation, and the length of the prompt."""
    if target.tokenizer is None:
        start = (np.arange(8) * 7919 + 17) % target.vocab_size
    else:
        start = np.asarray(target.tokenizer(_START)["input_ids"], np.int64) % target.vocab_size
    limit = min(target.context_length or PREFILL_CHUNK, PREFILL_CHUNK)
    start = start[: limit // 2]
    count = min(TOKENS, limit - len(start))
    cache = target.new_cache(1, len(start) + count)
    token = int(target.prefill(start, cache).argmax())
    tokens = [*start.tolist(), token]
    for _ in range(count - 1):
        tokens.append(int(target.prefill(tokens[-1:], cache).argmax()))
    return np.asarray(tokens, np.int64), len(start)


def _features(target: Target, tokens: np.ndarray, layers: Sequence[int]) -> torch.Tensor:
    """float[n, layers, width], the target's hidden states of ``layers`` at each token."""
    cache = target.new_cache(1, len(tokens))
    features = target.forward(cache, [0], [chain(tokens)], [1], layers).features
    assert features is not None
    return features


@torch.inference_mode()
def _hits(ids: torch.Tensor, begin: int, features: torch.Tensor, shift: int, predict: Predict) -> np.ndarray:
    """bool[k], which generated tokens are predicted if each hidden state is paired with the token ``shift`` places later."""
    size = len(ids) - shift
    guesses = predict(features[:size], ids[shift:])[:-1]
    right: np.ndarray = (guesses == ids[shift + 1 :]).cpu().numpy()
    return right[max(0, begin - shift - 1) :]
