"""Drafts do not change the output: fp64 decoding gives the same ids with any drafter."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from suffolk.serving.decoding.drafters.hybrid.drafter import HybridDrafter
from suffolk.serving.decoding.drafters.retrieval.datastore import DatastoreDrafter
from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.engine.loop.drafter import Drafter
from suffolk.serving.decoding.engine.loop.generation import Generation
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.brute_force import BruteForceRetriever
from tests.support.drafters import MadeUpDrafter, eager_decoder, knowing, lying, random_tree
from tests.support.examples import examples
from tests.support.hierarchies import hierarchy, noisy
from tests.support.tiny_models import VOCAB, tiny_model

PROMPT = [3, 14, 15, 92, 65, 35, 89, 79, 3, 14, 15]
MAX_NEW = 24


def alternate(texts: torch.Tensor) -> torch.Tensor:
    """A strict grammar: after the prompt odd and even tokens alternate.

    It raises for other texts, as automata do. Sampled tokens obey the grammar, so only drafted tokens can violate it.
    """
    odd = texts[:, len(PROMPT) - 1 :] % 2
    if (odd[:, 1:] == odd[:, :-1]).any():
        raise ValueError("no such state")
    return torch.arange(VOCAB)[None] % 2 != odd[:, -1:]


GREEDY = SamplingSettings(max_new_tokens=MAX_NEW)
DRAWN = SamplingSettings(max_new_tokens=MAX_NEW, temperature=0.9, seed=5)
PROCESSED = [
    replace(GREEDY, repetition_penalty=1.3),
    replace(DRAWN, repetition_penalty=1.2, min_p=0.05),
    replace(GREEDY, presence_penalty=0.8, frequency_penalty=0.5),
    replace(DRAWN, presence_penalty=-0.5, frequency_penalty=0.4, top_p=0.9),
    replace(GREEDY, bad_words=tuple((token,) for token in range(0, VOCAB, 3))),
    replace(DRAWN, bad_words=tuple((token, token + 1) for token in range(VOCAB - 1))),
    replace(GREEDY, processors=(transformers.NoRepeatNGramLogitsProcessor(2),)),
    replace(GREEDY, token_mask=alternate),
    replace(DRAWN, token_mask=alternate, repetition_penalty=1.1, top_k=10),
]
SAMPLINGS = [
    SamplingSettings(max_new_tokens=MAX_NEW),
    *(
        SamplingSettings(max_new_tokens=MAX_NEW, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
        for temperature in (0.7, 1.0)
        for top_k, top_p, seed in ((0, 1.0, 0), (5, 1.0, 1), (0, 0.8, 2), (20, 0.9, 3))
    ),
    *PROCESSED,
]
NAMES = ("knowing", "random", "lying", "prompt-lookup", "datastore", "hybrid", "hierarchy")


@cache
def target(eos: int | None = None) -> Target:
    model = tiny_model("llama")
    model.generation_config.eos_token_id = eos
    return Target.wrap(model)


@cache
def draft_model() -> Target:
    return noisy(0.02)


def make(name: str, prompt: list[int], output: list[int], seed: int) -> Drafter:
    rng = np.random.default_rng(seed)
    store = DatastoreDrafter(BruteForceRetriever([[*prompt, *output], output[3:] + output[:9]], VOCAB), VOCAB)
    return {
        "knowing": lambda: knowing(len(prompt), output, 6, rng, VOCAB),
        "random": lambda: MadeUpDrafter(lambda request: random_tree(rng, int(rng.integers(0, 20)), VOCAB)),
        "lying": lambda: lying(rng, VOCAB),
        "prompt-lookup": lambda: PromptLookupDrafter(VOCAB),
        "datastore": lambda: store,
        "hybrid": lambda: HybridDrafter([PromptLookupDrafter(VOCAB), store]),
        "hierarchy": lambda: hierarchy(4, target(), draft_model(), temperatures=(None, 0.4)),
    }[name]()


@cache
def plain_text(sampling: SamplingSettings) -> Generation:
    plain = eager_decoder(target(), None).generate(PROMPT, sampling)
    list(plain)
    return plain


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=[f"sampling{number}" for number in range(len(SAMPLINGS))])
def test_the_output_does_not_depend_on_the_drafter(name: str, sampling: SamplingSettings) -> None:
    plain = plain_text(sampling)
    drafted = eager_decoder(target(), make(name, PROMPT, plain.tokens, 7)).generate(PROMPT, sampling)
    list(drafted)
    assert drafted.tokens == plain.tokens
    assert drafted.stats.finish == plain.stats.finish == "length"
    assert plain.stats.mean_generated_length == 1.0
    if name in ("knowing", "datastore"):
        assert drafted.stats.mean_generated_length > 2.0  # otherwise the test would check nothing
    if name == "lying":
        assert drafted.stats.draft_failures["InvalidArgument"] + drafted.stats.draft_failures["Unavailable"] > 0


@examples(40, suppress_health_check=[HealthCheck.too_slow])
@given(
    prompt=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=30),
    name=st.sampled_from(NAMES),
    temperature=st.sampled_from([0.0, 0.7, 1.0, 1.5]),
    top_k=st.sampled_from([0, 4]),
    top_p=st.sampled_from([1.0, 0.6]),
    seed=st.integers(0, 2**63 - 1),
    eos=st.sampled_from([None, 5, 40]),
    length=st.integers(1, 20),
    min_p=st.sampled_from([0.0, 0.2]),
    repetition_penalty=st.sampled_from([1.0, 1.2]),
    frequency_penalty=st.sampled_from([0.0, 0.3]),
    bad_words=st.sampled_from([(), ((7,), (3, 14), (14, 15, 9))]),
)
def test_any_prompt_any_settings(
    prompt: list[int],
    name: str,
    temperature: float,
    top_k: int,
    top_p: float,
    seed: int,
    eos: int | None,
    length: int,
    **processing: Any,
) -> None:
    sampling = SamplingSettings(length, temperature, top_k, top_p, seed, **processing)
    plain = eager_decoder(target(eos), None).generate(prompt, sampling)
    list(plain)
    drafted = eager_decoder(target(eos), make(name, prompt, plain.tokens, seed % 1000)).generate(prompt, sampling)
    steps = list(drafted)
    assert drafted.tokens == plain.tokens
    assert drafted.stats.finish == plain.stats.finish
    assert [token for step in steps for token in step.tokens] == plain.tokens
