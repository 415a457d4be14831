"""Tests the recurrent head: its forward pass, training targets, alignment of features, and bounds of its configuration."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch

from suffolk.datastore.errors import InvalidArgument, Unsupported
from suffolk.datastore.settings import from_json
from suffolk.serving.decoding.drafters.neural.redrafter.config import BeamConfig, LossConfig, RedrafterConfig
from suffolk.serving.decoding.drafters.neural.redrafter.model import RedrafterHead
from suffolk.serving.decoding.drafters.training.head import Batch, HeadLoss, TrainableHead
from suffolk.serving.decoding.engine.model.target import Target
from tests.support.heads import random_head, train
from tests.support.tiny_models import VOCAB, tiny_model

SHAPES: list[dict[str, Any]] = [
    {},
    {"initial_state": "zero", "exit_dim": 48, "blocks": 2},
    {"output": "target"},
    {"output": "target", "exit_dim": 32, "blocks": 0},
    {"recurrent": False, "initial_state": "zero"},
]


@pytest.fixture(scope="module")
def target() -> Target:
    return Target.wrap(tiny_model())


def reference(head: RedrafterHead, feature: torch.Tensor, read: int, fed: list[int]) -> torch.Tensor:
    """Compute logits after ``fed`` from the stored tensors only."""
    model, weights = tiny_model(), head.state_dict()
    embedding = model.get_input_embeddings().weight
    state = embedding[read] if head.config.initial_state == "embedding" else torch.zeros(32, dtype=torch.float64)
    for token in fed:
        if head.config.recurrent:
            total = weights["token_to_state.weight"] @ embedding[token] + weights["state_to_state.weight"] @ state
            total = total + weights["state_to_state.bias"]
            state = total / (1 + torch.exp(-total))
        else:
            state = state + embedding[token]
    x = torch.cat([feature, state])
    if "projection.weight" in weights:
        x = weights["projection.weight"] @ x + weights["projection.bias"]
    for block in range(head.config.blocks):
        total = weights[f"blocks.{block}.weight"] @ x + weights[f"blocks.{block}.bias"]
        x = x + total / (1 + torch.exp(-total))
    if "output.weight" in weights:
        x = weights["output.weight"] @ x
    return x if head.config.output == "own" else model.get_output_embeddings().weight @ x


@pytest.mark.parametrize("shape", SHAPES)
def test_the_forward_pass_is_the_paper_s(target: Target, shape: dict[str, Any]) -> None:
    head = random_head(target, **shape)
    features = torch.randn(2, 32, dtype=torch.float64)
    texts = torch.tensor([[3, 1, 4, 1], [5, 9, 2, 6]])
    states = head.initial_state(texts[:, 0])
    for size in (1, 2, 3):
        logits, states = head(features, states, texts[:, size])
        for row, text in enumerate(texts.tolist()):
            expected = reference(head, features[row], text[0], text[1 : size + 1])
            assert (logits[row] - expected).abs().max() < 1e-12
    with torch.inference_mode():
        assert torch.allclose(head.logits(features, states), logits)


@torch.no_grad()
def naive_losses(head: RedrafterHead, batch: Batch, config: LossConfig) -> HeadLoss:
    """Compute the losses one window, one feature and one depth after the other."""
    hits, seen, loss = [0.0] * config.tokens, [0.0] * config.tokens, 0.0
    for depth in range(1, config.tokens + 1):
        terms = []
        for text, counted, begun, features in zip(
            batch.tokens.tolist(), batch.counted, batch.starts, batch.features[:, :, 0], strict=True
        ):
            for at in np.flatnonzero(begun[: len(text) - 1 - depth].numpy()).tolist():
                laws = [reference(head, features[at], text[at], text[at + 1 : at + 1 + k]) for k in range(1, depth + 1)]
                right = [int(law.argmax()) == text[at + 1 + k] for k, law in enumerate(laws, 1)]
                label = at + 1 + depth
                if not counted[label]:
                    continue
                if config.distillation:
                    aim = (tiny_model().get_output_embeddings().weight @ features[at + depth]).softmax(0)
                    terms.append(-(aim * laws[-1].log_softmax(0)).sum())
                else:
                    terms.append(-laws[-1].log_softmax(0)[text[label]])
                seen[depth - 1] += all(right[:-1])
                hits[depth - 1] += all(right)
        loss += float(sum(terms)) / max(1, len(terms))
    return HeadLoss(torch.tensor(loss), torch.tensor(hits), torch.tensor(seen))


@pytest.mark.parametrize("distillation", [False, True])
@pytest.mark.parametrize("initial_state", ["embedding", "zero"])
@pytest.mark.parametrize("begun", [None, [[1, 0, 1, 1, 0, 1], [0, 1, 1, 0, 1, 0]]])
def test_losses_are_those_of_each_feature_and_depth(
    target: Target, distillation: bool, initial_state: str, begun: list[list[int]] | None
) -> None:
    config = LossConfig(4, distillation)
    head = random_head(target, loss=config, initial_state=initial_state)
    torch.manual_seed(1)
    batch = Batch(
        torch.randint(0, 3, (2, 6)),
        torch.tensor([[0, 0, 0, 1, 1, 1], [1, 1, 1, 1, 0, 1]]).bool(),
        torch.randn(2, 6, 1, 32, dtype=torch.float64),
        None if begun is None else torch.tensor(begun).bool(),
    )
    with torch.no_grad():
        head.output.weight[3:] -= 5.0  # type: ignore[index, operator]  # so that some guesses are right
    train(head, batch, 3)
    found, expected = head.losses(batch), naive_losses(head, batch, config)
    assert float(found.loss.detach()) == pytest.approx(float(expected.loss))
    assert found.seen.tolist() == expected.seen.tolist()
    assert found.hits.tolist() == expected.hits.tolist()
    assert found.hits.sum() > 0 or distillation
    assert found.hits.dtype == torch.float64
    short = Batch(batch.tokens[:, :2], batch.counted[:, :2], batch.features[:, :2])
    assert float(head.losses(short).loss) == 0  # a feature, a token known, and none to predict


def shifted_text(shift: int, seed: int) -> Batch:
    """Return a text whose token i + 2 repeats token i + 1 or is the next token.

    The feature of token i + ``shift`` tells which.
    """
    steps = torch.randint(0, 2, (16, 40), generator=torch.Generator().manual_seed(seed))
    tokens = torch.zeros_like(steps)
    for place in range(2, tokens.shape[1]):
        tokens[:, place] = (tokens[:, place - 1] + steps[:, place - 2 + shift]) % 3
    features = torch.nn.functional.one_hot(steps, 32).double()[:, :, None]
    return Batch(tokens, torch.ones_like(tokens, dtype=torch.bool), features)


def rates(target: Target, shift: int) -> list[float]:
    """Return the acceptance by depth on texts that the head has not learned from."""
    head = train(random_head(target, loss=LossConfig(2), initial_state="zero"), shifted_text(shift, 0), 60)
    losses = head.losses(shifted_text(shift, 1))
    return (losses.hits / losses.seen).tolist()  # type: ignore[no-any-return]


def test_a_feature_is_for_the_token_but_one_behind_it(target: Target) -> None:
    first, second = rates(target, 0)
    assert first == 1.0  # token i + 2, from token i + 1 and the feature of token i
    assert second < 0.6  # token i + 3: what the next feature says is not known yet
    assert rates(target, -1)[0] < 0.6  # off by one there is nothing to learn
    assert rates(target, 1)[0] < 0.6


@pytest.mark.parametrize("output", ["own", "target"])
def test_of_the_target_nothing_is_trained_or_stored(output: str) -> None:
    model = tiny_model()
    head: TrainableHead = random_head(Target.wrap(model), loss=LossConfig(3, True), output=output)
    assert isinstance(head, RedrafterHead)
    own = {"token_to_state.weight", "state_to_state.weight", "state_to_state.bias", "blocks.0.weight", "blocks.0.bias"}
    assert head.state_dict().keys() == own | {"output.weight"}
    before = [parameter.clone() for parameter in model.parameters()]
    batch = Batch(
        torch.randint(0, VOCAB, (2, 9)),
        torch.ones(2, 9, dtype=torch.bool),
        torch.randn(2, 9, 1, 32, dtype=torch.float64),
    )
    first = float(head.losses(batch).loss.detach())
    train(head, batch, 5)
    assert float(head.losses(batch).loss.detach()) < first
    assert all(parameter.grad is not None for parameter in head.parameters())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))


GOOD = RedrafterConfig(97, 32, 64)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RedrafterConfig(0, 32, 64), "vocab_size is 0"),
        (lambda: RedrafterConfig(97, 1 << 17, 64), "hidden_size is 131072; it must be between 1 and 65536"),
        (lambda: RedrafterConfig(97, 32, 6.5), "exit_dim is 6.5"),  # type: ignore[arg-type]
        (lambda: RedrafterConfig(97, 32, 64, 65), "blocks is 65"),
        (lambda: RedrafterConfig(97, 32, 64, initial_state="first"), "one of embedding, zero"),
        (lambda: RedrafterConfig(97, 32, 64, output="both"), "one of own, target"),
        (lambda: RedrafterConfig(97, 32, 64, recurrent=1), "recurrent is 1"),  # type: ignore[arg-type]
        (lambda: from_json(RedrafterConfig, asdict(GOOD) | {"depth": 3}, "it"), "it: unknown key 'depth'"),
        (lambda: from_json(RedrafterConfig, {"blocks": 1}, "it"), "it has no vocab_size; it needs vocab_size"),
        (lambda: BeamConfig(width=0), "width is 0"),
        (lambda: BeamConfig(length=65), "length is 65"),
        (lambda: LossConfig(tokens=0), "tokens is 0"),
        (lambda: LossConfig(distillation=1), "distillation is 1"),  # type: ignore[arg-type]
    ],
)
def test_a_value_out_of_its_range_is_refused(make: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as error:
        make()
    assert "\n" not in str(error.value)


def test_configurations_come_back_from_json() -> None:
    for shape in SHAPES:
        config = RedrafterConfig(**{"vocab_size": 97, "hidden_size": 32, "exit_dim": 64, **shape})
        assert from_json(RedrafterConfig, asdict(config), "it") == config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 16}, "hidden size is 16, but the embedding of model .* has 32"),
        ({"vocab_size": 98}, "98 tokens, model .* has 97"),
    ],
)
def test_a_head_of_another_model_is_refused(target: Target, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        random_head(target, **changes)
