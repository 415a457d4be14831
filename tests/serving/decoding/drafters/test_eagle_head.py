"""Tests the EAGLE head. Its forward pass equals plain loops, and its loss, acceptance and shapes are right."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from suffolk.datastore.errors import InvalidArgument, Unsupported
from suffolk.datastore.settings import from_json
from suffolk.serving.decoding.drafters.neural.eagle.config import EagleConfig, RopeScaling
from suffolk.serving.decoding.drafters.neural.eagle.layer import causal, rotations
from suffolk.serving.decoding.drafters.neural.eagle.model import EagleHead
from suffolk.serving.decoding.drafters.neural.tree_bounds import TreeBounds
from suffolk.serving.decoding.drafters.training.head import Batch, TrainableHead
from tests.support.eagle_heads import (
    DRAFTED,
    PROMPT,
    batch_of,
    eagle_config,
    features_of,
    own_texts,
    random_head,
    tiny_target,
)
from tests.support.tiny_models import VOCAB

Floats = npt.NDArray[np.float64]


class PlainHead:
    """The same head in numpy, row by row and head by head, with rotary positions as complex numbers."""

    def __init__(self, head: EagleHead) -> None:
        self.form = head.config
        self.weights = {name: tensor.detach().numpy() for name, tensor in head.state_dict().items()}
        model = tiny_target().model
        self.embedding = model.get_input_embeddings().weight.detach().numpy()
        self.output = model.get_output_embeddings().weight.detach().numpy()

    def states(self, tokens: list[int], hidden: Floats) -> Floats:
        """Return float[n, hidden] for the pairs of a text's prefix."""
        keys: list[npt.NDArray[np.complex128]] = []
        values: list[Floats] = []
        found = []
        for position, (token, state) in enumerate(zip(tokens, hidden, strict=True)):
            embedded = self.embedding[token]
            if self.form.version == 1:
                residual = self.weights["fc.weight"] @ np.hstack([embedded, state]) + self.weights["fc.bias"]
                read = residual
            else:
                normed = self.norm(state, "layer.hidden_norm")
                residual = normed if self.form.norm_before_residual else state
                read = np.hstack([self.norm(embedded, "layer.input_layernorm"), normed])
            keys.append(self.turned(read, "k", position))
            values.append(self.projected(read, "v"))
            queries = self.turned(read, "q", position)
            seen = [self.mixed(query, keys, values, number) for number, query in enumerate(queries)]
            residual = residual + self.weights["layer.self_attn.o_proj.weight"] @ np.hstack(seen)
            inner = self.norm(residual, "layer.post_attention_layernorm")
            gate = self.weights["layer.mlp.gate_proj.weight"] @ inner
            gate = gate / (1 + np.exp(-gate)) * (self.weights["layer.mlp.up_proj.weight"] @ inner)
            found.append(residual + self.weights["layer.mlp.down_proj.weight"] @ gate)
        return np.array(found)

    def logits(self, state: Floats) -> Floats:
        if self.form.version == 1:
            return self.output @ state  # type: ignore[no-any-return]
        drafted = self.weights["lm_head.weight"] @ self.norm(state, "norm")
        spread = np.full(VOCAB, -np.inf)
        for draft_id, logit in enumerate(drafted):
            spread[draft_id + self.weights["d2t"][draft_id]] = logit
        return spread

    def norm(self, row: Floats, name: str) -> Floats:
        return self.weights[f"{name}.weight"] * row / np.sqrt(np.mean(row**2) + self.form.rms_eps)  # type: ignore[no-any-return]

    def projected(self, row: Floats, part: str) -> Floats:
        return (self.weights[f"layer.self_attn.{part}_proj.weight"] @ row).reshape(-1, self.form.head_width)  # type: ignore[no-any-return]

    def turned(self, row: Floats, part: str, position: int) -> npt.NDArray[np.complex128]:
        heads, half = self.projected(row, part), self.form.head_width // 2
        speeds = 1 / self.form.rope_theta ** (np.arange(half) / half)
        return (heads[:, :half] + 1j * heads[:, half:]) * np.exp(1j * position * speeds)  # type: ignore[no-any-return]

    def mixed(self, query: npt.NDArray[np.complex128], keys: list[Any], values: list[Floats], number: int) -> Floats:
        own = number // (self.form.heads // self.form.key_value_heads)
        scores = np.array([(query * key[own].conj()).sum().real for key in keys]) / np.sqrt(self.form.head_width)
        shares = np.exp(scores - scores.max())
        return np.sum([share * value[own] for share, value in zip(shares / shares.sum(), values, strict=True)], axis=0)  # type: ignore[no-any-return]


@pytest.mark.parametrize(("version", "norm_first"), [(1, False), (3, False), (3, True)])
def test_a_forward_pass_equals_plain_loops(version: int, norm_first: bool) -> None:
    """The test makes two steps: one from the target's hidden states, and one from the head's own."""
    head = random_head(version, norm_before_residual=norm_first)
    plain = PlainHead(head)
    features = features_of(PROMPT, head.layers)[:-1]
    flat = features.flatten(1).numpy()
    given = flat if version == 1 else flat @ plain.weights["fc.weight"].T
    expected = plain.states(PROMPT[1:], given)
    tokens = torch.tensor(PROMPT)
    with torch.no_grad():
        states = head.step(tokens[None, 1:], head.fuse(features)[None], torch.arange(29), causal)[0]
        assert np.abs(states.numpy() - expected).max() < 1e-9
        logits = np.array([plain.logits(state) for state in expected])
        assert np.array_equal(np.isneginf(logits), np.isneginf(head.logits(states).numpy()))
        finite = np.isfinite(logits)
        assert np.abs(head.logits(states).numpy()[finite] - logits[finite]).max() < 1e-9
        again = head.step(tokens[None, 1:], states[None], torch.arange(29), causal)[0]
    assert np.abs(again.numpy() - plain.states(PROMPT[1:], expected)).max() < 1e-9


def test_the_target_s_weights_are_no_part_of_a_head() -> None:
    head = random_head()
    theirs = {id(parameter) for parameter in tiny_target().model.parameters()}
    assert not theirs & {id(parameter) for parameter in head.parameters()}
    assert not [name for name in head.state_dict() if "embed" in name or "lm_head" in name]
    head.train()
    torch.autograd.backward(head.losses(batch_of(own_texts()[:2], head.layers)).loss)
    assert all(parameter.grad is not None for parameter in head.parameters())
    assert all(parameter.grad is None for parameter in tiny_target().model.parameters())


def test_the_loss_is_that_of_the_paper_on_counted_tokens() -> None:
    head: TrainableHead = random_head()
    batch = batch_of(own_texts()[:3, :12], head.layers)
    counted = torch.rand(batch.tokens.shape, generator=torch.Generator().manual_seed(1)) < 0.5
    batch = replace(batch, counted=counted, begun=counted.roll(1))
    plain, distances, crosses = PlainHead(random_head()), [], []
    for text, chosen, begun, features in zip(
        batch.tokens.tolist(),
        counted.tolist(),
        batch.starts.tolist(),
        batch.features[:, :, 0].numpy(),
        strict=True,
    ):
        states = plain.states(text[1:], features[:-1])
        for pair in range(len(text) - 2):
            if chosen[pair + 2]:
                gap = np.abs(states[pair] - features[pair + 1])
                distances.append(np.where(gap < 1, gap**2 / 2, gap - 0.5).mean())
                if not begun[pair]:
                    continue
                true, found = plain.logits(features[pair + 1]), plain.logits(states[pair])
                law = np.exp(true - true.max()) / np.exp(true - true.max()).sum()
                crosses.append(-(law * (found - found.max() - np.log(np.exp(found - found.max()).sum()))).sum())
    expected = np.mean(distances) + 0.1 * np.mean(crosses)
    assert head.losses(batch).loss.item() == pytest.approx(float(expected), rel=1e-5)  # cross-entropy is taken in fp32


def test_noise_is_for_training_alone() -> None:
    head = random_head()
    batch = batch_of(own_texts()[:2], head.layers)
    quiet = head.losses(batch).loss.item()
    assert head.losses(batch).loss.item() == quiet
    head.train()
    first, second = head.losses(batch), head.losses(batch)
    assert first.loss.item() != second.loss.item()
    assert len(first.hits) == 1  # the depth with logits; deeper ones are measured without noise
    head.noise = 0.0
    assert head.losses(batch).loss.item() == quiet


def test_acceptance_by_depth_is_that_of_chains_drafted_one_by_one() -> None:
    head = random_head(seed=3)
    copied = own_texts()[:2, :14]
    batch = batch_of(copied, head.layers)
    text = copied.clone()
    for depth in range(5):  # the head's own chain behind the fourth pair
        text[0, 5 + depth] = _drafted_by_truth(head, text[0].tolist(), 3)[depth]
    batch = Batch(
        text, torch.arange(14).expand(2, 14) != 7, torch.stack([features_of(each, (2,)) for each in text.tolist()])
    )
    hits, seen = np.zeros(5), np.zeros(5)
    for row in text.tolist():
        for start in range(12):
            guesses = _drafted_by_truth(head, row, start)
            for depth, guess in enumerate(guesses, 1):
                at = start + depth + 1
                seen[depth - 1] += at != 7
                hits[depth - 1] += at != 7 and guess == row[at]
                if guess != row[at]:
                    break
    found = head.losses(batch)
    assert found.hits.tolist() == hits.tolist()
    assert found.seen.tolist() == seen.tolist()
    assert seen[0] == 22
    assert hits[4] > 0


@torch.no_grad()
def _drafted_by_truth(head: EagleHead, row: list[int], start: int) -> list[int]:
    """The head's predictions of tokens start + 2, start + 3 ..., as if all earlier predictions were right."""
    hidden = head.fuse(features_of(row, head.layers))[: start + 1]
    guesses = []
    for depth in range(1, min(5, len(row) - start - 2) + 1):
        tokens = torch.tensor(row[1 : start + depth + 1])
        states = head.step(tokens[None], hidden[None], torch.arange(len(tokens)), causal)[0]
        guesses.append(int(head.logits(states[-1]).argmax()))
        hidden = torch.cat([hidden, states[-1:]])
    return guesses


def test_version_3_drafts_its_own_vocabulary_and_is_not_trained_here() -> None:
    head = random_head(3)
    assert head.target_ids().tolist() == DRAFTED
    with pytest.raises(Unsupported, match="not trained"):
        head.losses(batch_of(own_texts()[:1], head.layers))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "version is 2; it must be 1"),
        ({"hidden_size": 0}, "hidden_size is 0; it must be between 1 and"),
        ({"heads": 3}, "key_value_heads is 2; it must divide heads, 3"),
        ({"head_width": 7}, "head_width is 7"),
        ({"layers": (1, 2)}, "layers is"),
        ({"layers": (-1,)}, "layers is"),
        ({"draft_vocab_size": 5}, "draft_vocab_size is 5; it must be between 0 and 0"),
        ({"rms_eps": 0.0}, "rms_eps is 0.0"),
        ({"rope_theta": 1.0}, "rope_theta is 1.0"),
        ({"rope_scaling": 8}, "rope_scaling is 8"),
        ({"fusion_bias": 1}, "fusion_bias is 1; it must be true or false"),
        ({"vocab_size": "97"}, "vocab_size is '97'"),
    ],
)
def test_a_form_out_of_its_bounds_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as error:
        eagle_config(**changes)
    assert "\n" not in str(error.value)


def test_scaled_rotary_positions_are_llama_s() -> None:
    import transformers
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    table = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    config = transformers.LlamaConfig(hidden_size=512, num_attention_heads=4, rope_parameters=table)
    speeds, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    cosines, sines = rotations(torch.tensor([0, 1]), 128, torch.float64, 500000.0, RopeScaling(8.0, 1.0, 4.0, 8192))
    assert torch.atan2(sines, cosines)[1, :64].numpy() == pytest.approx(speeds.numpy(), rel=1e-5)
    assert cosines[0].tolist() == [1.0] * 128


def test_a_form_survives_json_and_unknown_options_are_refused() -> None:
    def read(values: dict[str, Any]) -> EagleConfig:
        return from_json(EagleConfig, values, "the config")

    for version in (1, 3):
        config = eagle_config(version, rope_scaling=RopeScaling(8.0, 1.0, 4.0, 8192) if version == 3 else None)
        assert read(json.loads(json.dumps(asdict(config)))) == config
    values = asdict(eagle_config())
    with pytest.raises(InvalidArgument, match="rope_scaling has no low; it needs factor, low, high, original"):
        read(values | {"rope_scaling": {"factor": 2.0}})
    with pytest.raises(InvalidArgument, match="the config: unknown key 'depth'"):
        read(values | {"depth": 5})
    with pytest.raises(InvalidArgument, match="the config has no heads"):
        read({name: value for name, value in values.items() if name != "heads"})


@pytest.mark.parametrize("wrong", [{"width": 0}, {"max_depth": 65}, {"max_nodes": 2.5}])
def test_a_tree_out_of_its_bounds_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        TreeBounds(**wrong)


def test_a_head_for_another_target_is_refused() -> None:
    with pytest.raises(Unsupported, match="hidden states of 16 and 97 tokens, the target has 32 and 97"):
        random_head(hidden_size=16)
    with pytest.raises(Unsupported, match="32 and 98 tokens, the target has 32 and 97"):
        random_head(vocab_size=98)
