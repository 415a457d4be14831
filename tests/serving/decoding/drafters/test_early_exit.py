"""The target's first layers as a drafter share weights and cache with the target, and leave it unchanged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from suffolk.datastore.errors import Corruption, InvalidArgument, NotFound, Unsupported
from suffolk.serving.decoding.drafters.drafter_config import DrafterConfig
from suffolk.serving.decoding.drafters.load import load_drafters
from suffolk.serving.decoding.drafters.neural.early_exit.drafter import EarlyExitDrafter, load_exit, with_exit
from suffolk.serving.decoding.drafters.neural.early_exit.model import shallow
from suffolk.serving.decoding.drafters.neural.early_exit.training import new_head
from suffolk.serving.decoding.drafters.neural.tree_bounds import TreeBounds
from suffolk.serving.decoding.drafters.training.head import Batch
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.tree_layout import chain
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.drafters import Free, alone, eager_decoder, eager_loop
from tests.support.tiny_models import FAMILIES, VOCAB, tiny_model

PROMPT = [(7 * number) % VOCAB for number in range(30)]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_first_layers_are_the_model_without_the_others(family: str) -> None:
    """The oracle is another model with fewer layers in its list. The target itself stays unchanged."""
    target = Target.wrap(tiny_model(family))
    before = target.prefill(PROMPT, target.new_cache(1, 64))
    first = shallow(target, 1)
    found = first.prefill(PROMPT, target.new_cache(1, 64))
    oracle = tiny_model(family)
    _cut_layers(oracle, 1)
    with torch.inference_mode():
        expected = oracle(input_ids=torch.tensor([PROMPT]), use_cache=False).logits[:, -1]
    assert (found - expected).abs().max() < (1e-4 if family == "gemma2" else 1e-9)
    assert not torch.allclose(found, before)
    assert torch.equal(before, target.prefill(PROMPT, target.new_cache(1, 64)))
    assert torch.equal(before, shallow(target, 2).prefill(PROMPT, target.new_cache(1, 64)))


def _cut_layers(model: Any, layers: int) -> None:
    for module in model.modules():
        for name, child in module.named_children():
            if isinstance(child, torch.nn.ModuleList) and len(child) == 2:
                setattr(module, name, child[:layers])


def test_what_the_target_has_cached_serves_its_first_layers() -> None:
    target = Target.wrap(tiny_model())
    first, cache = shallow(target, 1), target.new_cache(1, 64)
    target.prefill(PROMPT[:-1], cache)
    row = chain(np.array(PROMPT[-1:]))
    found = first.forward(cache, [0], [row], [1]).logits
    assert torch.equal(found, first.prefill(PROMPT, target.new_cache(1, 64)))


@pytest.mark.parametrize("family", ["gpt2", "opt"])
def test_no_node_lies_beyond_the_context(family: str) -> None:
    """Regression: a position without an embedding used to make the draft fail on a CPU.

    It would have aborted the process on a GPU.
    """
    size = {"gpt2": "n_positions", "opt": "max_position_embeddings"}[family]
    target = Target.wrap(tiny_model(family, **{size: 48}))
    settings = SamplingSettings(100)
    drafter = EarlyExitDrafter(shallow(target, 1), TreeBounds(max_depth=8), Free())
    run = eager_decoder(target, drafter).generate(PROMPT, settings)
    list(run)
    assert run.tokens == alone(target, PROMPT, settings)
    assert len(PROMPT) + len(run.tokens) == 48
    assert not run.stats.draft_failures


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("passes", ["packed", "captured"])
def test_all_layers_are_always_right(temperature: float, passes: str) -> None:
    settings = SamplingSettings(45, temperature, top_k=20, seed=3)
    target = Target.wrap(tiny_model())
    drafter = EarlyExitDrafter(shallow(target, target.layers), TreeBounds(max_depth=8, width=1, children=1), Free())
    loop = eager_loop(target, {"early-exit": drafter}, slots=2, passes=passes)
    requests = [Request(number, target, PROMPT[number:], settings, "early-exit", 64) for number in (1, 2)]
    for request in requests:
        loop.join(request)
    while loop.running:
        loop.step()
    for number, request in enumerate(requests, 1):
        assert request.generated == alone(target, PROMPT[number:], settings)
        assert request.stats.steps == 5
        assert request.stats.accepted == 39


def test_a_tree_that_does_not_fit_the_cache_is_left_out() -> None:
    target, settings = Target.wrap(tiny_model()), SamplingSettings(20)
    drafter = EarlyExitDrafter(shallow(target, 1), TreeBounds(max_depth=10, width=10), Free())
    run = eager_decoder(target, drafter, max_nodes=4).generate(PROMPT, settings)
    list(run)
    assert run.tokens == alone(target, PROMPT, settings)
    assert drafter.failures.by_reason["ResourceExhausted"] > 0
    assert run.stats.draft_failures["ResourceExhausted"] > 0


def test_a_trained_exit_is_better_than_the_shared_head_and_comes_back_from_its_folder(tmp_path: Path) -> None:
    """The exit is trained briefly on the target's output. After loading from its folder, it drafts the same trees."""
    target = Target.wrap(tiny_model())
    head = new_head(target, 1, 64)
    assert not {id(each) for each in head.parameters()} & {id(each) for each in target.model.parameters()}
    texts = torch.tensor([alone(target, [number], SamplingSettings(60, 1.0, seed=number)) for number in range(24)])
    with torch.no_grad():
        features = tiny_model()(input_ids=texts, output_hidden_states=True).hidden_states[1][:, :, None]
    batch = Batch(texts, torch.ones_like(texts, dtype=torch.bool), features)
    optimizer = torch.optim.AdamW(head.parameters(), 1e-2)
    first = head.losses(batch)
    for _ in range(60):
        optimizer.zero_grad()
        head.losses(batch).loss.backward()
        optimizer.step()
    assert all(each.grad is None for each in target.model.parameters())  # which do not change
    last = head.losses(batch)
    assert last.loss < 0.8 * first.loss
    assert last.hits[0] > first.hits[0]
    head.save(tmp_path)
    drafters = [
        EarlyExitDrafter(model, costs=Free()) for model in (with_exit(target, head), load_exit(tmp_path, target))
    ]
    runs = [eager_decoder(target, drafter).generate(PROMPT, SamplingSettings(30)) for drafter in drafters]
    assert [list(run) for run in runs][0]
    assert runs[0].tokens == runs[1].tokens == alone(target, PROMPT, SamplingSettings(30))
    assert runs[0].stats.accepted == runs[1].stats.accepted


def test_an_exit_begins_as_the_target_s_own_head() -> None:
    target = Target.wrap(tiny_model())
    exit_model = with_exit(target, new_head(target, 1, 8))
    plain = shallow(target, 1).prefill(PROMPT, target.new_cache(1, 64))
    assert torch.equal(plain, exit_model.prefill(PROMPT, target.new_cache(1, 64)))


@pytest.mark.parametrize("other", [{"num_hidden_layers": 3}, {"vocab_size": 96}, {"hidden_size": 16}])
def test_an_exit_of_another_model_is_refused(other: dict[str, int], tmp_path: Path) -> None:
    new_head(Target.wrap(tiny_model(**other)), 1, 8).save(tmp_path)
    said = "the exit is for a model of . layers, hidden size .. and .. tokens; model .* has 2, 32 and 97; use a head"
    with pytest.raises(Unsupported, match=f"^head {tmp_path}: {said}"):
        load_exit(tmp_path, Target.wrap(tiny_model()))


@pytest.mark.parametrize("layers", [0, 2, 3])
def test_an_exit_behind_no_layer_or_all_is_refused(layers: int) -> None:
    target = Target.wrap(tiny_model())
    with pytest.raises(InvalidArgument, match=f"layers is {layers}; it must be 1 or more, and fewer than the 2 of"):
        new_head(target, layers, 8)
    with pytest.raises(
        InvalidArgument, match=f"exit_layers is {layers}; it must be 1 or more, and fewer than the (2 of|model has)"
    ):
        load_drafters(target, DrafterConfig(exit_layers=layers))


def test_exits_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    target = Target.wrap(tiny_model())
    with pytest.raises(NotFound, match="config.json: cannot be read"):
        load_exit(tmp_path, target)
    head = new_head(target, 1, 8)
    head.save(tmp_path)
    with torch.no_grad():
        head.inner.weight[0, 0] = torch.nan
    (broken := tmp_path / "broken").mkdir()
    head.save(broken)
    with pytest.raises(Corruption, match="inner.weight holds NaN or infinity"):
        load_exit(broken, target)
    whole = json.loads((tmp_path / "config.json").read_text())
    changes: list[tuple[dict[str, Any], str]] = [
        (whole | {"x": 1}, "unknown key 'x'"),
        ({name: whole[name] for name in whole if name != "vocab_size"}, "has no vocab_size"),
        (whole | {"layers": 2}, "layers is 2; it must be 1 or more, and fewer than the 2 of the model"),
        (whole | {"layers": "1"}, "layers is '1', of type str"),
    ]
    for values, said in changes:
        (tmp_path / "config.json").write_text(json.dumps(values))
        with pytest.raises(Corruption, match=f"config.json:? {said}"):
            load_exit(tmp_path, target)
    (tmp_path / "config.json").write_text(json.dumps(whole | {"width": 9}))
    with pytest.raises(Corruption, match=r"inner.weight has shape \[8, 32\], its config.json says \[9, 32\]"):
        load_exit(tmp_path, target)
