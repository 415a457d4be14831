"""Unmodified transformers models of many families: trees in one pass, and the same greedy text as their own generate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers

from datastore.draft_tree import DraftTree
from datastore.errors import InvalidArgument, ResourceExhausted, Unsupported
from serving.decoding.near_tie import first_difference
from serving.decoding.settings import SamplingSettings
from serving.decoding.target import Target
from serving.decoding.tree_attention import lay_out
from tests.drafters import MadeUpDrafter, eager_decoder, knowing, random_tree, tree
from tests.tiny_models import FAMILIES, VOCAB, tiny_model

PROMPT = [(7 * number) % VOCAB for number in range(20)]
NO_SDPA = {"gemma2"}
CASES = [
    (family, attention)
    for family in FAMILIES
    for attention in ("sdpa", "eager")
    if attention == "eager" or family not in NO_SDPA
]


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


@pytest.mark.parametrize(("family", "attention"), CASES)
def test_a_tree_in_one_pass_equals_its_paths_one_by_one(family: str, attention: str) -> None:
    """Also behind a compacted tree, and further than a sliding window reaches."""
    model = tiny_model(family, attention=attention)
    target = Target.wrap(model)
    limit = 1e-9 if attention == "sdpa" else 1e-4  # eager attention computes its softmax in fp32
    first, second = random_tree(np.random.default_rng(0), 9, VOCAB), random_tree(np.random.default_rng(1), 9, VOCAB)
    changed = [*PROMPT[:-3], 1, *PROMPT[-2:]]
    assert (logits_after(model, PROMPT) - logits_after(model, changed)).abs().max() > 1e-2  # or a mask would not matter
    cache = target.new_cache(64)
    target.prefill(PROMPT[:-1], cache)
    rows = target.forward_tree(lay_out(PROMPT[-1], first), cache)
    for node in range(-1, 9):
        expected = logits_after(model, PROMPT + path_to(first, node))
        assert (rows[node + 1] - expected).abs().max() < limit
    deepest = int(np.argmax(first.depths()))
    accepted = [node for node in range(9) if path_to(first, node) == path_to(first, deepest)[: first.depths()[node]]]
    cache.keep(torch.tensor([0, *(node + 1 for node in accepted)]))
    context = PROMPT + path_to(first, deepest)
    rows = target.forward_tree(lay_out(5, second), cache)
    for node in range(-1, 9):
        expected = logits_after(model, [*context, 5, *path_to(second, node)])
        assert (rows[node + 1] - expected).abs().max() < limit


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_text_is_that_of_transformers_generate(family: str) -> None:
    model = tiny_model(family)
    with torch.inference_mode():
        expected = model.generate(
            torch.tensor([PROMPT]), attention_mask=torch.ones(1, len(PROMPT)), max_new_tokens=30, do_sample=False
        )
    output = expected[0, len(PROMPT) :].tolist()
    target = Target.wrap(model)
    law = SamplingSettings(max_new_tokens=30)
    for drafter in (None, knowing(len(PROMPT), output, 5, np.random.default_rng(0), VOCAB)):
        generation = eager_decoder(target, drafter).generate(PROMPT, law)
        list(generation)
        assert generation.tokens == output


def test_a_prompt_longer_than_a_prefill_chunk() -> None:
    model = tiny_model(max_position_embeddings=2048)
    target = Target.wrap(model)
    prompt = np.random.default_rng(0).integers(0, VOCAB, 1100).tolist()
    cache = target.new_cache(1100)
    assert (target.prefill(prompt, cache)[0] - logits_after(model, prompt)).abs().max() < 1e-9


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Mamba", {"hidden_size": 32, "num_hidden_layers": 2}, "keeps no keys and values"),
        ("Bloom", {"hidden_size": 32, "n_layer": 2, "n_head": 4}, "does not take a 4-D attention mask"),
        ("Mpt", {"d_model": 32, "n_layers": 2, "n_heads": 4}, "does not honour 4-D attention masks"),
        (
            "GPTNeo",
            {"hidden_size": 32, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]},
            "local attention counts rows",
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
def test_rounding_is_told_from_a_mask_that_is_ignored(dtype: torch.dtype) -> None:
    for family in ("llama", "gpt2"):
        Target.wrap(tiny_model(family).to(dtype))
    torch.manual_seed(0)
    config = transformers.MptConfig(vocab_size=VOCAB, d_model=32, n_layers=2, n_heads=4)
    with pytest.raises(Unsupported, match="does not honour 4-D attention masks"):
        Target.wrap(transformers.AutoModelForCausalLM.from_config(config).to(dtype))


def greedy(target: Target, drafter: Any = None, **settings: Any) -> Any:
    generation = eager_decoder(target, drafter).generate(PROMPT, SamplingSettings(**settings))
    return generation, list(generation)


def test_eos_inside_an_accepted_path_ends_the_text_there() -> None:
    model = tiny_model()
    output = greedy(Target.wrap(model), max_new_tokens=20)[0].tokens
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
    assert stats.to_dict()["accepted_by_source"] == {"1": 7}


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
    with pytest.raises(ResourceExhausted, match="out of memory; use --dtype bfloat16"):
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
