"""Tests the options of a request's drafts: they are checked, passed to its drafter, and counted."""

from __future__ import annotations

import difflib
import random
from typing import Any

import numpy as np
import pytest

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.drafters.retrieval.token_recycling import TokenRecyclingDrafter
from suffolk.serving.decoding.engine.loop.draft_options import DEFAULT_OPTIONS, MAX_PREDICTION, DraftOptions
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.loop.prompt import encode_continuation
from suffolk.serving.decoding.engine.loop.request import PredictionCounter
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.drafters import Free, MadeUpDrafter
from tests.support.tiny_models import tiny_model, tiny_tokenizer
from tests.support.worker_server import talking_target

PROMPT = "abcabc: "


class StoreDrafter(MadeUpDrafter):
    """Drafts nothing, under the names of two datastores, and records its requests."""

    datastores = ("wiki", "code")

    def __init__(self) -> None:
        super().__init__(self._keep)
        self.requests: list[DraftRequest] = []

    def _keep(self, request: DraftRequest) -> DraftTree:
        self.requests.append(request)
        return DraftTree.empty()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"prediction": "x" * (MAX_PREDICTION + 1)},
            f"has {MAX_PREDICTION + 1} characters; the limit is {MAX_PREDICTION}",
        ),
        ({"prediction": [1] * (MAX_PREDICTION + 1)}, f"has {MAX_PREDICTION + 1} token ids; the limit is"),
        ({"prediction": "a\ud800"}, "the prediction has a surrogate"),
        ({"prediction": 5}, "the prediction, of type int, .*; give a text or a flat list of token ids"),
        ({"prediction": [[1], [2]]}, "the prediction, of type list"),
        ({"prediction": [0.5]}, "the prediction, of type list, is an array of float64"),
        ({"datastores": "wiki"}, "datastores is 'wiki', of type str; it must be a tuple of names"),
        ({"datastores": (1,)}, "datastores: a name is 1, of type int"),
        ({"remember": 1}, "remember is 1; it must be true or false"),
        ({"group": ""}, "group has 0 characters; it must have 1 to 256"),
        ({"group": "x" * 257}, "group has 257 characters; it must have 1 to 256: hash a long key"),
        ({"group": 7}, "group is 7, of type int; it must be a text"),
    ],
)
def test_a_bad_value_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        DraftOptions(**values)


def test_values_are_kept_unchangeable() -> None:
    options = DraftOptions(np.array([3, 1], np.int64), ["wiki"])  # type: ignore[arg-type]  # a list does too
    assert options == DraftOptions((3, 1), ("wiki",))
    assert hash(options) == hash(DraftOptions((3, 1), ("wiki",)))
    assert DraftOptions(None, None, True) == DEFAULT_OPTIONS


def test_an_engine_refuses_unknown_datastores_and_malformed_options() -> None:
    target = talking_target()
    with Engine(target, {"made-up": StoreDrafter()}, Free()) as engine:
        assert engine.datastores == ("code", "wiki")
        with pytest.raises(InvalidArgument, match="datastore 'news' is not loaded; loaded: code, wiki"):
            engine.generate(PROMPT, options=DraftOptions(datastores=("wiki", "news")))
        with pytest.raises(InvalidArgument, match="options is of type dict; give DraftOptions, or None"):
            engine.generate(PROMPT, options={})  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match=r"the prediction has ids -1\.\.3; model"):
            engine.generate(PROMPT, options=DraftOptions((3, -1)))
    with (
        Engine(Target.wrap(tiny_model())) as engine,
        pytest.raises(InvalidArgument, match="was loaded without a tokenizer; send the prediction as token ids"),
    ):
        engine.generate([1, 2], options=DraftOptions("a text"))


@pytest.mark.parametrize("options", [None, DraftOptions("abc", ("wiki",), remember=False)])
def test_a_drafter_gets_the_options_and_the_tokens_of_the_prediction(options: DraftOptions | None) -> None:
    drafter = StoreDrafter()
    with Engine(talking_target(), {"made-up": drafter}, Free()) as engine:
        list(engine.generate(PROMPT, SamplingSettings(max_new_tokens=3), "made-up", options=options))
    request = drafter.requests[0]
    assert request.options == (options or DEFAULT_OPTIONS)
    if options is None:
        assert request.prediction is None
    else:
        assert request.prediction is not None
        assert request.prediction.tolist() == tiny_tokenizer()("abc")["input_ids"]
        assert not request.prediction.flags.writeable


@pytest.mark.parametrize("remember", [True, False])
def test_drafters_do_not_learn_from_requests_with_remember_off(remember: bool) -> None:
    drafter = TokenRecyclingDrafter(ends=1024)
    with Engine(talking_target(), {"recycling": drafter}, Free()) as engine:
        list(engine.generate(PROMPT, SamplingSettings(20), "recycling", options=DraftOptions(remember=remember)))
        assert (drafter.stats()["ends"] > 0) is remember


class Spaced:
    """Encodes words, with a start mark like SentencePiece. "l" and "m" merge into one token."""

    words = ("<start>", "a", "b", "l", "m", "lm")

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        words = [*text.replace("lm", "*")]
        return {"input_ids": [0] * bool(words) + [self.words.index(word.replace("*", "lm")) for word in words]}

    def decode(self, ids: list[int]) -> str:
        return "".join(self.words[each] for each in ids if each)


@pytest.mark.parametrize(
    ("prompt", "text", "tokens"),
    [
        ([0, 1, 2], "ab", [1, 2]),  # no start mark inside a text
        ([0, 1] * 9, "ab", [1, 2]),
        ([0, 1, 3], "mab", [0, 4, 1, 2]),  # "l" and "m" merge, so the tokens of the text alone are used
        ([0], "ab", [0, 1, 2]),
    ],
)
def test_a_prediction_is_encoded_as_a_continuation(prompt: list[int], text: str, tokens: list[int]) -> None:
    target = Target.wrap(tiny_model(), Spaced())
    assert encode_continuation(target, np.array(prompt, np.int32), text) == tokens


def longest_common(first: list[int], second: list[int]) -> int:
    row = [0] * (len(second) + 1)
    for token in first:
        before = row[:]
        for at, other in enumerate(second, 1):
            row[at] = before[at - 1] + 1 if token == other else max(before[at], row[at - 1])
    return row[-1]


@pytest.mark.parametrize("seed", range(20))
def test_missing_tokens_are_those_of_a_shortest_diff(seed: int) -> None:
    rng = random.Random(seed)
    prediction, text = ([rng.randrange(4) for _ in range(rng.randrange(200))] for _ in range(2))
    counter = PredictionCounter(np.array(prediction, np.int32))
    for end in range(0, len(text) + 7, 7):
        assert counter.missing == len(prediction) - longest_common(prediction, text[:end])
        counter.add(text[end : end + 7])


def test_missing_tokens_of_an_edit() -> None:
    old, new = [*range(100)], [*range(30), 200, 201, *range(40, 100)]
    counter = PredictionCounter(np.array(old, np.int32))
    counter.add(new)
    blocks = difflib.SequenceMatcher(None, old, new).get_matching_blocks()
    assert counter.missing == 100 - sum(block.size for block in blocks) == 10
