"""Tests the loading of recurrent heads: every layout drafts as before, rejected folders have messages, and the head check."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from suffolk.datastore.errors import Corruption, NotFound, SuffolkError, Unsupported
from suffolk.serving.decoding.drafters.neural.head_check import generated_text
from suffolk.serving.decoding.drafters.neural.redrafter.config import LossConfig
from suffolk.serving.decoding.drafters.neural.redrafter.drafter import RedrafterDrafter, load_head, load_redrafter
from suffolk.serving.decoding.drafters.neural.redrafter.model import RedrafterHead
from suffolk.serving.decoding.drafters.training.head import Batch
from suffolk.serving.decoding.engine.model.target import Target
from tests.support.heads import FREE, drafter_of, last_states, random_head, train, tree_behind
from tests.support.tiny_models import VOCAB, tiny_model

PROMPT = [(7 * number) % VOCAB for number in range(30)]


@pytest.fixture(scope="module")
def target() -> Target:
    return Target.wrap(tiny_model())


def apple_folder(head: RedrafterHead, folder: Path) -> Path:
    """Save the head in the layout of Apple's code."""
    folder.mkdir()
    config, own = head.config, head.state_dict()
    values = {
        "architectures": ["Drafter"],
        "model_type": "recurrent_drafting_drafter",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "exit_dim": config.exit_dim,
        "num_draft_layers": config.blocks,
        "num_lookback_tokens": -1,
        "rnn": config.recurrent,
        "torch_dtype": "float64",
    }
    (folder / "config.json").write_text(json.dumps(values))
    tensors = {f"lm_head.{config.blocks}.weight": own["output.weight"]}
    for block in range(config.blocks):
        tensors[f"lm_head.{block}.linear.weight"] = own[f"blocks.{block}.weight"]
        tensors[f"lm_head.{block}.linear.bias"] = own[f"blocks.{block}.bias"]
    if config.recurrent:
        tensors["rnn_w.weight"] = own["token_to_state.weight"]
        tensors["rnn_u.weight"], tensors["rnn_u.bias"] = own["state_to_state.weight"], own["state_to_state.bias"]
    if config.exit_dim != 2 * config.hidden_size:
        tensors["input_proj.weight"], tensors["input_proj.bias"] = own["projection.weight"], own["projection.bias"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def own_folder(head: RedrafterHead, folder: Path) -> Path:
    folder.mkdir()
    head.save(folder)
    return folder


@pytest.mark.parametrize(
    ("write", "shape"),
    [
        (own_folder, {}),
        (own_folder, {"output": "target", "exit_dim": 40, "blocks": 2}),
        (own_folder, {"recurrent": False, "blocks": 0}),
        (apple_folder, {"initial_state": "zero", "blocks": 2}),
        (apple_folder, {"initial_state": "zero", "exit_dim": 48}),
        (apple_folder, {"initial_state": "zero", "recurrent": False}),
    ],
)
def test_a_stored_head_drafts_as_before(
    target: Target, tmp_path: Path, write: Callable[[RedrafterHead, Path], Path], shape: dict[str, Any]
) -> None:
    head = random_head(target, 3, **shape)
    folder = write(head, tmp_path / "head")
    loaded = load_redrafter(folder, target, slots=2, costs=FREE)
    assert load_head(folder, target).config == head.config
    assert loaded.layers == (target.layers,)
    expected = drafter_of(head, target, width=8, length=5)
    for options in ({}, {"temperature": 0.9, "seed": 4}):
        found, wanted = (tree_behind(each, PROMPT, max_nodes=40, **options) for each in (loaded, expected))
        assert len(found) > 5
        assert found.tokens.tolist() == wanted.tokens.tolist()
        assert found.parents.tolist() == wanted.parents.tolist()
        assert found.scores.tolist() == pytest.approx(wanted.scores.tolist())


def test_a_head_takes_the_target_s_dtype_and_its_costs_are_measured(target: Target, tmp_path: Path) -> None:
    folder = own_folder(random_head(target), tmp_path / "head")
    single = Target.wrap(tiny_model().float())
    head = load_head(folder, single)
    assert {parameter.dtype for parameter in head.parameters()} == {torch.float32}
    drafter = RedrafterDrafter(head, single, slots=2)
    assert len(tree_behind(drafter, PROMPT)) > 0


def change_config(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def change_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


BAD: list[tuple[Callable[[Path], Any], type[SuffolkError], str]] = [
    (lambda folder: (folder / "config.json").unlink(), NotFound, "config.json: cannot be read"),
    (lambda folder: (folder / "model.safetensors").unlink(), NotFound, "model.safetensors does not exist"),
    (lambda folder: (folder / "config.json").write_text("{"), Corruption, "no JSON"),
    (lambda folder: (folder / "config.json").write_text("[]"), Corruption, "holds a list, no object"),
    (lambda folder: (folder / "model.safetensors").write_bytes(b"12345678901"), Corruption, "weights are damaged"),
    (
        lambda folder: change_config(folder, suffolk="eagle"),
        Unsupported,
        "suffolk is 'eagle'; the head's kind must be 'redrafter'",
    ),
    (lambda folder: change_config(folder, heads=3), Corruption, "unknown key 'heads'"),
    (lambda folder: change_config(folder, blocks=-1), Corruption, "blocks is -1"),
    (lambda folder: change_config(folder, blocks=2), Corruption, "tensor blocks.1.weight is missing"),
    (lambda folder: change_config(folder, blocks=0), Corruption, "tensor blocks.0.bias is unexpected"),
    (lambda folder: change_config(folder, exit_dim=63), Corruption, "projection.weight is missing"),
    (lambda folder: change_config(folder, hidden_size=16), Unsupported, "hidden size is 16, .* has 32"),
    (lambda folder: change_config(folder, vocab_size=90), Unsupported, "has 90 tokens, .* has 97"),
    (
        lambda folder: change_tensors(folder, lambda tensors: tensors.update({"output.weight": torch.ones(97, 3)})),
        Corruption,
        r"output.weight has shape \[97, 3\], its config.json says \[97, 64\]",
    ),
    (
        lambda folder: change_tensors(folder, lambda tensors: tensors["blocks.0.bias"][3:].fill_(torch.nan)),
        Corruption,
        "blocks.0.bias holds NaN or infinity",
    ),
    (
        lambda folder: change_tensors(folder, lambda tensors: tensors["output.weight"].fill_(torch.inf)),
        Corruption,
        "output.weight holds NaN or infinity",
    ),
]


@pytest.mark.parametrize(("damage", "error", "message"), BAD)
def test_a_bad_folder_is_refused_in_one_line(
    target: Target, tmp_path: Path, damage: Callable[[Path], Any], error: type[SuffolkError], message: str
) -> None:
    folder = own_folder(random_head(target), tmp_path / "head")
    damage(folder)
    with pytest.raises(error, match=message) as caught:
        load_redrafter(folder, target)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


def test_what_is_missing_in_apple_s_files_is_named_as_there(target: Target, tmp_path: Path) -> None:
    folder = apple_folder(random_head(target, initial_state="zero"), tmp_path / "head")
    change_tensors(folder, lambda tensors: tensors.pop("rnn_u.bias"))
    with pytest.raises(Corruption, match=r"tensor rnn_u.bias is missing"):
        load_redrafter(folder, target)
    change_config(folder, rnn=False)
    with pytest.raises(Corruption, match=r"tensor rnn_[uw].weight is unexpected"):
        load_redrafter(folder, target)
    (folder / "config.json").write_text(json.dumps({"model_type": "recurrent_drafting_drafter"}))
    with pytest.raises(Corruption, match="vocab_size is missing"):
        load_redrafter(folder, target)


def test_a_head_is_not_saved_into_a_folder_that_is_not_there(target: Target, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="does not exist; make it first"):
        random_head(target).save(tmp_path / "missing")


@pytest.mark.parametrize(
    ("shift", "words"), [(0, ""), (1, "tokens look one step too early"), (-1, "tokens look one step too late")]
)
def test_the_head_check_finds_hidden_states_of_another_token(
    target: Target, tmp_path: Path, shift: int, words: str
) -> None:
    """The head of this test has memorised the check's text, from the hidden states of the token before or after."""
    tokens, _ = generated_text(target)
    texts = torch.from_numpy(tokens)[None]
    shifted = last_states(texts).roll(shift, 1)
    batch = Batch(texts, torch.ones_like(texts, dtype=torch.bool), shifted)
    head = random_head(target, 4, LossConfig(1), initial_state="zero", recurrent=False)
    train(head, batch, 200).save(tmp_path)
    if not words:
        load_redrafter(tmp_path, target, costs=FREE)
        return
    with pytest.raises(Unsupported, match=rf"{words} against features: acceptance \d+% instead of \d+%"):
        load_redrafter(tmp_path, target, costs=FREE)
    assert load_redrafter(tmp_path, target, costs=FREE, check=False).name == "redrafter"
