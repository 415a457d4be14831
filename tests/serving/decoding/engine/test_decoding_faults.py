"""An error in one request's draft, logits or text does not affect other requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import Internal, Unavailable, Unsupported
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest, Generated, SampledChain
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.verify_step import verify
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.candidates import select_candidates
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.drafters import alone, eager_loop
from tests.support.tiny_models import FAMILIES, VOCAB, tiny_model

PROMPT = [(7 * number) % VOCAB for number in range(30)]


class Sure:
    """Drafts from earlier text. ``kind`` selects the kind of an invalid draft."""

    name = "sure"

    def __init__(self, text: Sequence[int], bare: bool = False) -> None:
        self._text, self._bare = np.asarray(text, np.int32), bare
        self.observed = 0

    def propose(self, requests: Sequence[DraftRequest]) -> Any:
        [request] = requests
        tokens = self._text[len(request.tokens) :][: 1 if self._bare else 4]
        size = len(tokens)
        tree = DraftTree(
            tokens, np.arange(-1, size - 1, dtype=np.int32), np.full(size, 0.9, np.float32), np.ones(size, np.uint32)
        )
        return tree if self._bare else [tree]

    def observe(self, generated: Generated) -> None:
        self.observed += sum(map(len, generated.values()))

    def release(self, request_id: int) -> None: ...

    def stats(self) -> dict[str, float]:
        return {}

    def close(self) -> None: ...


def run(loop: Any, *requests: Request) -> dict[int, Any]:
    last: dict[int, Any] = {}
    for request in requests:
        loop.join(request)
    while loop.running:
        last |= {request.number: answer for request, answer in loop.step()}
    return last


def test_memory_that_is_enough_without_drafts_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a draft tree that did not fit into memory used to end every request of the engine.

    The drafter must also observe the tokens of this step. Otherwise it would take the tokens of a later step for those
    after its old tree.
    """
    target, settings = Target.wrap(tiny_model()), SamplingSettings(20)
    expected = alone(target, PROMPT, settings)
    drafter = Sure([*PROMPT, *expected])
    loop = eager_loop(target, {"sure": drafter}, slots=2)
    forward = loop.passes.forward

    def small(slots: Any, layouts: Any, wanted: Any) -> Any:
        if any(1 < len(layout) < 10 for layout in layouts):  # a tree, and no prompt
            raise torch.OutOfMemoryError("out of memory")
        return forward(slots, layouts, wanted)

    monkeypatch.setattr(loop.passes, "forward", small)
    request = Request(1, target, PROMPT, settings, "sure", 8)
    run(loop, request)
    assert request.generated == expected
    assert request.stats.draft_failures["ResourceExhausted"] > 0
    assert request.stats.accepted == 0
    assert drafter.observed == request.stats.draft_calls


class NoRoom(torch.Tensor):
    """Hidden states whose copy raises an out-of-memory error."""

    def __getitem__(self, rows: Any) -> Any:
        raise torch.OutOfMemoryError("out of memory")


class Reads(Sure):
    """A drafter that reads hidden states."""

    layers = (1,)

    def follow(self, request_id: int, features: torch.Tensor) -> None: ...


def test_hidden_states_that_do_not_fit_are_their_drafter_s_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: hidden states used to be copied outside of the error handling. An error ended every request of the engine."""
    target, settings = Target.wrap(tiny_model()), SamplingSettings(8)
    expected = alone(target, PROMPT, settings)
    loop = eager_loop(target, {"reads": Reads([*PROMPT, *expected])})
    forward = loop.passes.forward

    def large(slots: Any, layouts: Any, wanted: Any) -> Any:
        read = forward(slots, layouts, wanted)
        return replace(read, features=read.features.as_subclass(NoRoom))

    monkeypatch.setattr(loop.passes, "forward", large)
    request = Request(1, target, PROMPT, settings, "reads", 8)
    run(loop, request)
    assert request.generated == expected
    assert request.stats.draft_failures["OutOfMemoryError"] > 0


def test_a_tree_in_place_of_a_list_is_a_failed_draft() -> None:
    """Regression: one node for one request used to pass as a list of one tree, and reading it ended the engine."""
    target, settings = Target.wrap(tiny_model()), SamplingSettings(8)
    loop = eager_loop(target, {"sure": Sure([*PROMPT, *alone(target, PROMPT, settings)], bare=True)}, slots=1)
    request = Request(1, target, PROMPT, settings, "sure", 8)
    run(loop, request)
    assert request.generated == alone(target, PROMPT, settings)
    assert request.stats.draft_failures["TypeError"] > 0


def test_a_tokenizer_that_fails_fails_its_request_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: one id that a tokenizer does not know used to end all requests."""
    target, settings = Target.wrap(tiny_model()), SamplingSettings(8)
    loop = eager_loop(target, {}, slots=2)
    odd, other = (Request(number, target, PROMPT[number:], settings, "", 8) for number in (1, 2))
    expected = alone(target, PROMPT[2:], settings)

    def fail(*given: object) -> None:
        raise IndexError("piece id is out of range")

    monkeypatch.setattr(odd, "commit", fail)
    answers = run(loop, odd, other)
    assert isinstance(answers[1], Internal)
    assert odd.stats.finish == "error"
    assert other.generated == expected


@pytest.mark.parametrize("changes", [{"top_k": 5}, {"top_p": 0.9}, {"min_p": 0.1}])
def test_logits_that_are_no_numbers_leave_a_token(changes: dict[str, Any]) -> None:
    """Regression: a model that overflowed on one prompt left no token to sample. This used to end all requests."""
    logits = torch.full((2, VOCAB), float("nan"))
    assert select_candidates(logits, SamplingSettings(8, temperature=0.7, **changes)).values.shape[-1] >= 1


def test_no_drafted_token_is_accepted_where_none_is_allowed() -> None:
    """Regression: if nothing may follow a token, an invented distribution used to return token 0."""
    target = Target.wrap(tiny_model())

    def mask(texts: torch.Tensor) -> torch.Tensor:
        return torch.full((len(texts), VOCAB), texts.shape[1] <= len(PROMPT))

    settings = SamplingSettings(8, temperature=1.0, verification="rejection", token_mask=mask)
    request = Request(1, target, PROMPT, settings, "", 8)
    rows = torch.zeros((3, VOCAB))
    rows[0, 5] = 50.0
    tree = DraftTree(
        np.array([5, 0], np.int32), np.array([-1, 0], np.int32), np.ones(2, np.float32), np.ones(2, np.uint32)
    )
    law = torch.zeros((2, VOCAB), dtype=torch.float64)
    law[0, 5] = law[1, 0] = 1.0
    [outcome] = verify([request], [SampledChain(tree, law)], [rows])
    assert not isinstance(outcome, Exception)
    assert (outcome.path.tolist(), outcome.token) == ([], 5)


def test_a_window_that_the_mask_alone_tells_is_refused() -> None:
    """This model applies its window only in the mask, as Qwen2-MoE does.

    Its rows would attend to the whole text and change the output.
    """
    model = tiny_model("qwen2-window", sliding_window=64)
    model.model.layers[0].self_attn.sliding_window = None
    with pytest.raises(Unsupported, match="layer 0 has a window of 64 tokens and does not pass it to its attention"):
        Target.wrap(model)
    Target.wrap(tiny_model("qwen2-window", sliding_window=64))


def test_rotary_frequencies_that_change_with_a_pass_bound_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a draft that crossed the bound used to change the frequencies of its own first row."""
    factors = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 64} | factors
    options = {"rope_parameters": rope, "original_max_position_embeddings": 64}
    monkeypatch.setitem(FAMILIES, "phi3-long", ("Phi3", FAMILIES["phi3"][1] | options))
    assert Target.wrap(tiny_model("phi3-long")).context_length == 64


def test_an_engine_refuses_in_a_forked_child() -> None:
    """Regression: a forked child used to wait forever, because the engine's thread does not exist there."""
    with Engine(Target.wrap(tiny_model()), slots=1, capacity=512) as engine:
        alive = engine._thread.is_alive
        engine._thread.is_alive = lambda: False  # type: ignore[method-assign]
        assert not engine.alive
        with pytest.raises(Unavailable, match="forked; make an engine here"):
            engine.generate(PROMPT)
        engine._thread.is_alive = alive  # type: ignore[method-assign]
