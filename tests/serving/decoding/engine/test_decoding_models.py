"""Tests unmodified transformers models of many families: trees in one pass, and the same greedy output as ``generate``."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument, ResourceExhausted, Unsupported
from suffolk.serving.decoding.engine.model.kv_cache import KVCache
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.tree_layout import lay_out
from suffolk.serving.decoding.engine.sampling.near_tie import first_difference
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.drafters import MadeUpDrafter, eager_decoder, knowing, random_tree, tree
from tests.support.forced_split import force
from tests.support.tiny_models import FAMILIES, VOCAB, tiny_model

ORACLE = {"gemma2": "eager"}
"""Attention of the oracle if it differs from transformers' default: capped scores need it."""

PROMPT = [(7 * number) % VOCAB for number in range(20)]


def path_to(draft: DraftTree, node: int) -> list[int]:
    path: list[int] = []
    while node >= 0:
        path.append(int(draft.tokens[node]))
        node = int(draft.parents[node])
    return path[::-1]


@torch.inference_mode()
def logits_after(model: Any, tokens: list[int]) -> torch.Tensor:
    logits: torch.Tensor = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1]
    return logits


@pytest.mark.parametrize("attention", ["masked", "split"])
@pytest.mark.parametrize("family", FAMILIES)
def test_packed_trees_equal_their_paths_one_by_one(
    family: str, attention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two requests of different lengths share a pass, longer than a sliding window, before and after a tree is compacted.

    The oracle is an unmodified model of transformers, which reads each path from the start.
    """
    oracle = tiny_model(family, attention=ORACLE.get(family))
    force(attention, monkeypatch)
    target = Target.wrap(tiny_model(family))
    limit = (
        1e-9 if oracle.config._attn_implementation == "sdpa" else 1e-4
    )  # eager attention computes its softmax in fp32
    contexts = [list(PROMPT), [*PROMPT[3:], 9]]
    changed = [*PROMPT[:-3], 1, *PROMPT[-2:]]
    assert (
        logits_after(oracle, PROMPT) - logits_after(oracle, changed)
    ).abs().max() > 1e-2  # otherwise attention would not matter
    cache = target.new_cache(3, 64)
    slots = [2, 0]
    for slot, context in zip(slots, contexts, strict=True):
        target.prefill(context[:-1], cache, slot)
    drafts = [random_tree(np.random.default_rng(seed), size, VOCAB) for seed, size in ((0, 9), (1, 6))]
    kept = []
    for draft, context, rows in zip(drafts, contexts, forward(target, cache, slots, contexts, drafts), strict=True):
        for node in range(-1, len(draft)):
            expected = logits_after(oracle, context + path_to(draft, node))
            assert (rows[node + 1] - expected).abs().max() < limit
        deepest = int(np.argmax(draft.depths()))
        accepted = [
            node for node in range(len(draft))
            if path_to(draft, node) == path_to(draft, deepest)[: draft.depths()[node]]
        ]  # fmt: skip
        kept.append(np.asarray([0, *(node + 1 for node in accepted)]))
        context += [*path_to(draft, deepest), 5]
    cache.keep(slots, kept)
    drafts = [random_tree(np.random.default_rng(seed), size, VOCAB) for seed, size in ((2, 5), (3, 0))]
    for draft, context, rows in zip(drafts, contexts, forward(target, cache, slots, contexts, drafts), strict=True):
        for node in range(-1, len(draft)):
            assert (rows[node + 1] - logits_after(oracle, context + path_to(draft, node))).abs().max() < limit


def forward(
    target: Target, cache: KVCache, slots: list[int], contexts: list[list[int]], drafts: list[DraftTree]
) -> list[torch.Tensor]:
    layouts = [lay_out(context[-1], draft) for context, draft in zip(contexts, drafts, strict=True)]
    sizes = [len(layout) for layout in layouts]
    return list(target.forward(cache, slots, layouts, sizes).logits.split(sizes))


@pytest.mark.parametrize(
    ("family", "attention"),
    [*((family, "masked") for family in FAMILIES), *((family, "split") for family in ("llama", "mistral", "gemma2"))],
)
def test_greedy_text_is_that_of_transformers_generate(
    family: str, attention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model(family)
    with torch.inference_mode():
        expected = model.generate(
            torch.tensor([PROMPT]), attention_mask=torch.ones(1, len(PROMPT)), max_new_tokens=30, do_sample=False
        )
    output = expected[0, len(PROMPT) :].tolist()
    force(attention, monkeypatch)
    target = Target.wrap(model)
    law = SamplingSettings(max_new_tokens=30)
    for drafter in (None, knowing(len(PROMPT), output, 5, np.random.default_rng(0), VOCAB)):
        generation = eager_decoder(target, drafter).generate(PROMPT, law)
        list(generation)
        assert generation.tokens == output


def test_a_prompt_longer_than_a_prefill_chunk() -> None:
    model = tiny_model(max_position_embeddings=2048)
    prompt = np.random.default_rng(0).integers(0, VOCAB, 1100).tolist()
    expected = logits_after(model, prompt)
    target = Target.wrap(model)
    cache = target.new_cache(1, 1100)
    assert (target.prefill(prompt, cache)[0] - expected).abs().max() < 1e-9


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Mamba", {"hidden_size": 32, "num_hidden_layers": 2}, "keeps no keys and values"),
        ("Bloom", {"hidden_size": 32, "n_layer": 2, "n_head": 4}, "its attention cannot be replaced"),
        ("Mpt", {"d_model": 32, "n_layers": 2, "n_heads": 4}, "its attention cannot be replaced"),
        (
            "GPTNeo",
            {"hidden_size": 32, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]},
            "its attention cannot be replaced",
        ),
        (
            "Llama4Text",
            {
                "hidden_size": 32,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "head_dim": 8,
            }
            | {"intermediate_size": 32, "intermediate_size_mlp": 32, "num_local_experts": 2},
            "chunked_attention, whose cache cannot hold draft trees",
        ),
    ],
)
def test_models_that_cannot_hold_trees_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    config = getattr(transformers, f"{name}Config")(
        vocab_size=VOCAB, bos_token_id=None, eos_token_id=None, pad_token_id=None, **options
    )
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).double()
    with pytest.raises(Unsupported, match=message):
        Target.wrap(model)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rounding_is_told_from_attention_that_is_ignored(dtype: torch.dtype) -> None:
    for family in ("llama", "gpt2"):
        Target.wrap(tiny_model(family).to(dtype))
    model = tiny_model().to(dtype)
    for layer in model.model.layers:
        layer.self_attn.forward = partial(without_rows, layer.self_attn.forward)
    with pytest.raises(Unsupported, match="does not take tree attention"):
        Target.wrap(model)


def without_rows(forward: Any, *args: Any, suffolk_rows: Any = None, **kwargs: Any) -> Any:
    """An attention layer that ignores unknown arguments."""
    return forward(*args, **kwargs)


def test_attention_that_gives_no_numbers_is_refused() -> None:
    model = tiny_model()
    for layer in model.model.layers:
        layer.self_attn.forward = partial(with_nan, layer.self_attn.forward)
    with pytest.raises(Unsupported, match="a draft tree changes its logits by nan"):
        Target.wrap(model)


def with_nan(forward: Any, *args: Any, **kwargs: Any) -> Any:
    output, *others = forward(*args, **kwargs)
    return output * (math.nan if kwargs.get("suffolk_rows") is not None else 1), *others


def test_a_model_belongs_to_one_target() -> None:
    model = tiny_model()
    Target.wrap(model)
    with pytest.raises(Unsupported, match="belongs to another Target; load it again"):
        Target.wrap(model)
    with pytest.raises(Unsupported, match="belongs to a Target and runs only in its passes"):
        model(input_ids=torch.tensor([PROMPT]))


def greedy(target: Target, drafter: Any = None, **settings: Any) -> Any:
    generation = eager_decoder(target, drafter).generate(PROMPT, SamplingSettings(**settings))
    return generation, list(generation)


def test_eos_inside_an_accepted_path_ends_the_text_there() -> None:
    output = greedy(Target.wrap(tiny_model()), max_new_tokens=20)[0].tokens
    model = tiny_model()
    model.generation_config.eos_token_id = output[7]
    target = Target.wrap(model)
    end = output.index(output[7]) + 1
    for drafter in (None, knowing(len(PROMPT), output, 8, np.random.default_rng(0), VOCAB)):
        generation, steps = greedy(target, drafter, max_new_tokens=20)
        assert generation.tokens == output[:end]
        assert (generation.stats.finish, steps[-1].finish) == ("eos", "eos")
    assert greedy(target, max_new_tokens=20, ignore_eos=True)[0].tokens == output


def test_the_text_ends_at_the_models_context_however_deep_the_draft() -> None:
    target = Target.wrap(tiny_model("gpt2", n_positions=32))  # learned positions: one too many would be an index error
    plain, _ = greedy(target, max_new_tokens=100)
    drafted, _ = greedy(target, knowing(20, plain.tokens, 10, np.random.default_rng(0), VOCAB), max_new_tokens=100)
    assert len(plain.tokens) == 12
    assert drafted.tokens == plain.tokens
    assert drafted.stats.finish == "context"


def test_steps_tell_tokens_sources_and_what_the_drafter_learns() -> None:
    target = Target.wrap(tiny_model())
    output = greedy(target, max_new_tokens=12)[0].tokens

    wrong = next(token for token in range(VOCAB) if token not in output)

    def two_right(request: Any) -> DraftTree:
        done = len(request.tokens) - len(PROMPT)
        return tree([wrong, *output[done : done + 2]], [-1, -1, 1][: 1 + len(output[done : done + 2])])

    drafter = MadeUpDrafter(two_right)
    generation, steps = greedy(target, drafter, max_new_tokens=12)
    assert [len(step.tokens) for step in steps] == [1, 3, 3, 3, 2]
    assert [step.sources for step in steps][1] == (1, 1, 0)
    assert drafter.observed == [list(step.tokens) for step in steps[1:]]
    assert len(drafter.released) == 1
    stats = generation.stats
    assert (stats.tokens, stats.steps, stats.accepted, stats.finish) == (12, 4, 7, "length")
    assert stats.mean_generated_length == 11 / 4
    report = stats.to_dict()
    assert report["accepted_by_source"] == report["earned_by_source"] == {"1": 7}
    assert report["drafted"] == [
        {"source": 1, "depth": 1, "proposed": 8, "verified": 8, "accepted": 4, "earned": 4},
        {"source": 1, "depth": 2, "proposed": 4, "verified": 3, "accepted": 3, "earned": 3},
    ]


def test_closing_early_releases_the_request_once() -> None:
    drafter = MadeUpDrafter(lambda request: DraftTree.empty())
    generation = eager_decoder(Target.wrap(tiny_model()), drafter).generate(PROMPT, SamplingSettings(max_new_tokens=9))
    next(generation)
    generation.close()
    generation.close()
    assert len(drafter.released) == 1
    assert list(generation) == []


@pytest.mark.parametrize(
    ("prompt", "settings", "message"),
    [
        ([], {}, "the prompt is empty"),
        ([VOCAB], {}, f"the prompt has ids {VOCAB}..{VOCAB}; model .* has {VOCAB}"),
        ([-1], {}, "the prompt has ids -1"),
        ([1] * 512, {}, "the prompt has 512 tokens; model .* takes 512 in all"),
        ([1], {"stop": ("x",)}, "stop strings need a tokenizer"),
    ],
)
def test_prompts_that_cannot_run_are_refused(prompt: list[int], settings: dict[str, Any], message: str) -> None:
    decoder = eager_decoder(Target.wrap(tiny_model()), None)
    with pytest.raises(InvalidArgument, match=message):
        decoder.generate(prompt, SamplingSettings(**settings))


def test_no_memory_for_the_cache_is_resource_exhausted() -> None:
    target = Target.wrap(tiny_model(max_position_embeddings=2**50))
    with pytest.raises(ResourceExhausted, match="out of memory; use a smaller dtype .bfloat16., less capacity"):
        eager_decoder(target, None).generate(PROMPT, SamplingSettings(max_new_tokens=2**40))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_first_difference_comes_with_its_gap(temperature: float) -> None:
    target = Target.wrap(tiny_model())
    law = SamplingSettings(max_new_tokens=8, temperature=temperature)
    plain = eager_decoder(target, None).generate(PROMPT, law)
    list(plain)
    assert first_difference(target, PROMPT, plain.tokens, plain.tokens, law) is None
    changed = [*plain.tokens[:5], (plain.tokens[5] + 1) % VOCAB, *plain.tokens[6:]]
    found = first_difference(target, PROMPT, plain.tokens, changed, law)
    assert found is not None
    assert (found.position, found.first, found.second) == (5, plain.tokens[5], changed[5])
    assert found.gap > 0
    shorter = first_difference(target, PROMPT, plain.tokens, plain.tokens[:4], law)
    assert shorter is not None
    assert (shorter.position, shorter.second) == (4, None)
