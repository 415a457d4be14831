"""Every row of a draft tree is processed as in transformers, and sampled as in plain decoding."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from suffolk.serving.decoding.engine.model.row_contexts import RowContexts
from suffolk.serving.decoding.engine.sampling.sampler import Sampler
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.drafters import random_tree
from tests.support.examples import examples

VOCAB = 23
CPU = torch.device("cpu")


def damp_the_last(texts: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    return scores.scatter_add_(1, texts[:, -1:], torch.full((len(texts), 1), -1.5, dtype=scores.dtype))


def never_one_up(texts: torch.Tensor) -> torch.Tensor:
    """A grammar that forbids one token: the sum of the last token and the length of the text."""
    allowed = torch.ones(len(texts), VOCAB, dtype=torch.bool)
    allowed[torch.arange(len(texts)), (texts[:, -1] + texts.shape[1]) % VOCAB] = False
    return allowed


tokens = st.integers(0, VOCAB - 1)
samplings = st.builds(
    SamplingSettings,
    temperature=st.sampled_from([0.0, 0.6, 1.0, 1.7]),
    top_k=st.sampled_from([0, 1, 4, 50]),
    top_p=st.sampled_from([1.0, 0.9, 0.4]),
    min_p=st.sampled_from([0.0, 0.1, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.7]),
    presence_penalty=st.sampled_from([0.0, 1.1, -0.4]),
    frequency_penalty=st.sampled_from([0.0, 0.6, -0.3]),
    bad_words=st.lists(st.lists(tokens, min_size=1, max_size=3).map(tuple), max_size=4).map(tuple),
    processors=st.sampled_from([(), (damp_the_last,), (damp_the_last, transformers.NoRepeatNGramLogitsProcessor(2))]),
    token_mask=st.sampled_from([None, never_one_up]),
    seed=st.integers(0, 2**63 - 1),
)


@dataclass
class Step:
    """Return logits of a tree after a text, and the text of each row."""

    contexts: RowContexts
    logits: torch.Tensor
    texts: list[npt.NDArray[np.int64]]


@st.composite
def steps(draw: Any) -> Step:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    text = rng.integers(0, VOCAB, draw(st.integers(1, 12)))
    tree = random_tree(rng, draw(st.integers(0, 12)), VOCAB)
    contexts = RowContexts.of_tree(text, int(rng.integers(1, len(text) + 1)), tree)
    texts = [text]
    for parent, token in zip(tree.parents, tree.tokens, strict=True):
        texts.append(np.append(texts[parent + 1], token))
    return Step(contexts, torch.from_numpy(rng.normal(0, 2, (len(texts), VOCAB))), texts)


@given(steps())
def test_rows_have_the_texts_of_their_paths(step: Step) -> None:
    contexts, texts = step.contexts, step.texts
    assert [len(text) for text in texts] == (len(contexts.tokens) + contexts.depths).tolist()
    levels = [(row, text) for rows, some in contexts.levels() for row, text in zip(rows, some, strict=True)]
    assert sorted(row for row, _ in levels) == list(range(len(texts)))
    for row, text in levels:
        np.testing.assert_array_equal(text, texts[row])
    for length in (0, 1, 3, 20):
        for text, tail in zip(texts, contexts.tails(length), strict=True):
            padded = [-1] * length + text.tolist()
            assert tail.tolist() == padded[len(padded) - length :]


def in_transformers(
    sampling: SamplingSettings, prompt_length: int, text: npt.NDArray[np.int64], row: torch.Tensor
) -> Any:
    """Process one row with transformers' classes, in the order of ``generate``."""
    counts = np.bincount(text[prompt_length:], minlength=VOCAB)

    def off(_: Any, scores: torch.Tensor) -> torch.Tensor:  # transformers has no such penalties
        return scores - torch.from_numpy(sampling.frequency_penalty * counts + sampling.presence_penalty * (counts > 0))

    def mask(texts: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        assert sampling.token_mask is not None
        return scores.masked_fill(~sampling.token_mask(texts), -torch.inf)

    chain: list[Any] = [transformers.RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty), off]
    if sampling.bad_words:
        chain.append(transformers.NoBadWordsLogitsProcessor([list(word) for word in sampling.bad_words]))
    chain += sampling.processors
    chain += [mask] if sampling.token_mask is not None else []
    if sampling.temperature > 0:
        chain.append(transformers.TemperatureLogitsWarper(sampling.temperature))
        chain += [transformers.TopKLogitsWarper(sampling.top_k)] if sampling.top_k else []
        chain += [transformers.TopPLogitsWarper(sampling.top_p)] if sampling.top_p < 1 else []
        chain += [transformers.MinPLogitsWarper(sampling.min_p)] if sampling.min_p else []
    texts, scores = torch.from_numpy(text)[None], row[None].clone()
    for each in chain:
        scores = each(texts, scores)
    return scores[0]


@examples(80)
@given(steps(), samplings)
def test_every_row_is_processed_as_by_transformers(step: Step, sampling: SamplingSettings) -> None:
    found = Sampler(sampling, VOCAB, CPU).probabilities(step.logits, step.contexts)
    drawn = Sampler(sampling, VOCAB, CPU).sample(step.logits, step.contexts)
    for row, text in enumerate(step.texts):
        expected = in_transformers(sampling, step.contexts.prompt_length, text, step.logits[row])
        if sampling.temperature == 0.0:
            assert found[row].nonzero().flatten().tolist() == [int(expected.argmax())] == [int(drawn[row])]
        else:
            torch.testing.assert_close(found[row], expected.softmax(-1))
            assert found[row, drawn[row]] > 0


@examples(80)
@given(steps(), samplings)
def test_a_row_is_drawn_as_the_committed_text_of_its_path(step: Step, sampling: SamplingSettings) -> None:
    """The sample at a node equals the sample of plain decoding after the same text.

    Plain decoding counts the tokens one by one.
    """
    drawn = Sampler(sampling, VOCAB, CPU).sample(step.logits, step.contexts).tolist()
    scores = Sampler(sampling, VOCAB, CPU).scores(step.logits, step.contexts)
    assert scores.argmax(-1).tolist() == drawn
    for row, text in enumerate(step.texts):
        plain = Sampler(sampling, VOCAB, CPU)
        for length in range(len(step.contexts.tokens), len(text) + 1):
            context = RowContexts.of_text(text[:length], step.contexts.prompt_length)
            alone = plain.sample(step.logits[row : row + 1], context)
        assert alone.tolist() == [drawn[row]]


@examples(50)
@given(steps(), samplings)
def test_one_sampling_is_the_same_at_every_temperature_that_only_scales_it(
    step: Step, sampling: SamplingSettings
) -> None:
    """Penalties and bans also apply to greedy decoding. So the greedy token is the likeliest token at any temperature."""
    greedy = Sampler(replace(sampling, temperature=0.0), VOCAB, CPU).sample(step.logits, step.contexts)
    sampled = Sampler(replace(sampling, temperature=1.0), VOCAB, CPU).probabilities(step.logits, step.contexts)
    assert greedy.tolist() == sampled.argmax(-1).tolist()
