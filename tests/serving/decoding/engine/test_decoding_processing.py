"""Tests users' functions and bans: the number of calls, the handling of errors, and log-probabilities."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.engine.model.row_contexts import RowContexts
from suffolk.serving.decoding.engine.sampling.log_probabilities import log_probabilities
from suffolk.serving.decoding.engine.sampling.sampler import NO_TOKEN, Sampler
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.decoding.engine.sampling.verification.match import accept
from tests.support.drafters import tree

CPU = torch.device("cpu")
VOCAB = 8
TEXT = np.array([1, 2, 3], np.int32)
DRAFT = tree([4, 5, 6, 7], [-1, -1, 0, 0])
TREE = RowContexts.of_tree(TEXT, 2, DRAFT)
LOGITS = torch.arange(VOCAB, dtype=torch.float64).expand(5, -1)


def sampler(**changes: Any) -> Sampler:
    return Sampler(SamplingSettings(**changes), VOCAB, CPU)


def test_functions_are_called_once_per_depth_with_all_texts_of_that_length() -> None:
    calls: list[list[list[int]]] = []

    def note(texts: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        assert scores.shape == (len(texts), VOCAB)
        calls.append(texts.tolist())
        return scores

    def all_allowed(texts: torch.Tensor) -> torch.Tensor:
        calls.append(texts.tolist())
        return torch.ones(len(texts), VOCAB, dtype=torch.bool)

    drawn = sampler(processors=(note, note), token_mask=all_allowed).sample(LOGITS, TREE)
    levels = [[[1, 2, 3]], [[1, 2, 3, 4], [1, 2, 3, 5]], [[1, 2, 3, 4, 6], [1, 2, 3, 4, 7]]]
    assert calls == [level for level in levels for _ in range(3)]
    assert drawn.tolist() == [7] * 5


def test_a_function_that_changes_its_scores_in_place_does_not_change_the_target() -> None:
    def ban(_: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return scores.fill_(-1.0)

    logits = LOGITS.clone()
    assert sampler(processors=(ban,)).sample(logits, TREE).tolist() == [0] * 5
    assert torch.equal(logits, LOGITS)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("top_k", [0, 3])
def test_a_mask_acts_at_every_temperature(temperature: float, top_k: int) -> None:
    def only_two(texts: torch.Tensor) -> torch.Tensor:
        return (torch.arange(VOCAB) == 2).expand(len(texts), -1)

    found = sampler(temperature=temperature, top_k=top_k, token_mask=only_two)
    assert found.sample(LOGITS, TREE).tolist() == [2] * 5
    assert found.probabilities(LOGITS, TREE)[:, 2].tolist() == [1.0] * 5


def fails_behind(token: int, fault: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A processor that returns or raises ``fault`` if one of the texts ends in ``token``."""

    def processor(texts: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return fault(scores) if token in texts[:, -1].tolist() else scores

    return processor


def _raise(_: torch.Tensor) -> torch.Tensor:
    raise KeyError("state")


FAULTS: list[tuple[Callable[[torch.Tensor], Any], str]] = [
    (_raise, r"processors\[0\] \(processor\) raised KeyError: 'state'; mend it"),
    (lambda scores: scores[:, 1:], r"processors\[0\] \(processor\) returned shape \[1, 7\]; it must be \[1, 8\]"),
    (lambda scores: scores.long(), r"processors\[0\] \(processor\) returned torch.int64; it must return scores"),
    (lambda scores: scores.numpy(), r"processors\[0\] \(processor\) returned ndarray; it must return a torch.Tensor"),
    (lambda scores: sys.exit(3), r"processors\[0\] \(processor\) raised SystemExit: 3; mend it"),
    (lambda scores: scores.resize_(1, 3), r"returned shape \[1, 3\]; it must be \[1, 8\]"),
    (lambda scores: scores.to_sparse(), "returned a tensor that is sparse or has no values"),
    (lambda scores: scores.to("meta"), "returned a tensor that is sparse or has no values"),
    (lambda scores: scores * math.nan, "processors gave a score of nan at position 3; scores must be finite"),
    (lambda scores: scores + math.inf, "processors gave a score of inf at position 3"),
    (lambda scores: scores - math.inf, "no token is allowed at position 3: .* allow at least one"),
]


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize(("fault", "message"), FAULTS)
def test_a_fault_behind_the_committed_text_is_named(fault: Any, message: str, temperature: float) -> None:
    found = sampler(processors=(fails_behind(3, fault),), temperature=temperature)
    for method in (found.sample, found.scores, found.probabilities):
        with pytest.raises(InvalidArgument, match=message):
            method(LOGITS, TREE)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("fault", [fault for fault, _ in FAULTS])
def test_a_fault_behind_a_drafted_token_only_keeps_that_row_from_being_followed(fault: Any, temperature: float) -> None:
    """Plain decoding may never reach this text. So the request must not fail, because its output cannot depend on drafts."""
    found = sampler(processors=(fails_behind(4, fault),), temperature=temperature, top_p=0.9, seed=1)
    good = sampler(temperature=temperature, top_p=0.9, seed=1).sample(LOGITS, TREE).tolist()
    isolated = {_raise}  # NaN scores affect only their own call; after an exception, rows are tried one by one
    assert found.sample(LOGITS, TREE).tolist()[1] == NO_TOKEN
    if fault in isolated:
        assert found.sample(LOGITS, TREE).tolist() == [good[0], NO_TOKEN, *good[2:]]
    assert found.probabilities(LOGITS, TREE)[1].tolist() == [0.0] * VOCAB


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (lambda texts: torch.zeros(len(texts), VOCAB, dtype=torch.bool), "no token is allowed at position 3"),
        (lambda texts: torch.zeros(len(texts), VOCAB), r"token_mask \(<lambda>\) returned torch.float32; .* bool"),
        (lambda _: torch.zeros(VOCAB, dtype=torch.bool), r"token_mask \(<lambda>\) returned shape \[8\]"),
        (lambda _: None, r"token_mask \(<lambda>\) returned NoneType"),
    ],
)
def test_a_fault_of_the_mask_is_named(mask: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        sampler(token_mask=mask).sample(LOGITS, TREE)


def test_bad_words_that_forbid_all_are_refused_at_the_token() -> None:
    found = sampler(bad_words=tuple((token,) for token in range(VOCAB)))
    with pytest.raises(InvalidArgument, match="no token is allowed at position 3: bad_words"):
        found.sample(LOGITS, TREE)


def test_a_bad_word_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"bad_words\[1\] is \(3, 8\); the vocabulary has 8 ids"):
        sampler(bad_words=((1,), (3, 8)))


def test_a_row_without_a_token_is_not_followed() -> None:
    drawn = np.array([4, 6, 0, NO_TOKEN, 0])
    assert accept(DRAFT.tokens, DRAFT.parents, drawn).tolist() == [
        0
    ]  # and 6, sampled after it, is committed as the sample
    assert accept(DRAFT.tokens, DRAFT.parents, np.array([4, 6, 0, 1, 0])).tolist() == [0, 2]


def test_plain_greedy_is_an_argmax_of_the_logits() -> None:
    assert sampler().is_plain_greedy
    assert sampler(top_k=5, top_p=0.5, min_p=0.1, logprobs=3).is_plain_greedy
    for changes in (
        {"temperature": 0.1},
        {"repetition_penalty": 1.1},
        {"presence_penalty": 0.1},
        {"frequency_penalty": -0.1},
        {"bad_words": ((1,),)},
        {"processors": (lambda _, scores: scores,)},
        {"token_mask": lambda texts: torch.ones(len(texts), VOCAB, dtype=torch.bool)},
    ):
        assert not sampler(**changes).is_plain_greedy


def test_half_precision_is_processed_in_single() -> None:
    """A number in bf16 has 8 bits, so a penalty of 0.1 on a logit of 40 would be lost in it."""
    logits = torch.tensor([[40.0, 40.0, 0.0]], dtype=torch.bfloat16)
    penalised = Sampler(SamplingSettings(presence_penalty=0.1), 3, CPU)
    assert penalised.sample(logits, RowContexts.of_text(np.array([2, 0]), 1)).tolist() == [1]


def test_log_probabilities_are_those_of_the_raw_logits() -> None:
    logits = torch.tensor([[0.0, 1.0, 3.0, 2.0], [5.0, 5.0, 0.0, -math.inf]], dtype=torch.float64)
    first, second = log_probabilities(logits, torch.tensor([1, 2]), 2)
    total = math.log(sum(math.exp(value) for value in (0, 1, 3, 2)))
    assert (first.token, first.value) == (1, pytest.approx(1 - total))
    assert [token for token, _ in first.alternatives] == [2, 3]
    assert [value for _, value in first.alternatives] == pytest.approx([3 - total, 2 - total])
    assert second.value == pytest.approx(-5 - math.log(2 + math.exp(-5)))
    assert log_probabilities(logits, torch.tensor([1, 2]), 0)[0].alternatives == ()
    assert len(log_probabilities(logits, torch.tensor([1, 2]), 20)[0].alternatives) == 4  # all tokens
