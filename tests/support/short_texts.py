"""Short texts of many requests with few tokens, and the distribution that they must follow.

The requests run through the step loop: several drafts per text, real caches, the production streams of coins and samples.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import torch

from suffolk.serving.decoding.engine.loop.drafter import Drafter
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.drafters import eager_loop
from tests.support.tiny_models import tiny_model

PROMPT = [0, 1, 2]
TEMPERATURE = 2.0


def distribution_of_texts(few: int, length: int) -> npt.NDArray[np.float64]:
    """float64[few ** length], the distribution of the tiny model's texts of ``length`` tokens out of ``few``."""
    texts = np.array(list(itertools.product(range(few), repeat=length)))
    with torch.no_grad():
        inputs = torch.tensor([[*PROMPT, *text] for text in texts.tolist()])
        logits = tiny_model(vocab_size=few)(inputs).logits[:, len(PROMPT) - 1 : -1]
        distributions = (logits / TEMPERATURE).softmax(-1).numpy()
    return np.asarray(np.take_along_axis(distributions, texts[..., None], 2)[..., 0].prod(1))


def counts_of_texts(target: Target, drafter: Drafter, length: int, runs: int) -> tuple[npt.NDArray[np.int64], float]:
    """How often each text of ``length`` tokens came in ``runs`` requests with ``rejection``, and accepted tokens per step."""
    loop = eager_loop(target, {drafter.name: drafter}, slots=200, capacity=30)
    settings = [
        SamplingSettings(length + 1, TEMPERATURE, seed=seed, verification="rejection", ignore_eos=True)
        for seed in range(runs)
    ]
    waiting = [Request(number, target, PROMPT, each, drafter.name, 8) for number, each in enumerate(settings)]
    requests = list(waiting)
    while waiting or loop.running:
        while waiting and loop.free:
            loop.join(waiting.pop())
        loop.step()
    few = target.vocab_size
    powers = few ** np.arange(length)[::-1]
    counts = np.bincount([int(request.generated[:length] @ powers) for request in requests], minlength=few**length)
    steps, accepted = (sum(getattr(request.stats, name) for request in requests) for name in ("steps", "accepted"))
    return counts, accepted / steps
