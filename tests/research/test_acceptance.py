"""Tests the study of the acceptance of drafts regardless of their cost."""

from __future__ import annotations

import pytest

from research.acceptance import measure_acceptance
from suffolk.benchmarks.prompts import Prompt
from suffolk.serving.decoding.drafters.neural.draft_model.drafter import DraftModelDrafter
from suffolk.serving.decoding.drafters.neural.tree_bounds import TreeBounds
from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.drafters import Free
from tests.support.tiny_models import VOCAB, tiny_model


@pytest.mark.parametrize(("temperature", "batch"), [(0.0, 1), (0.8, 1), (0.0, 2)])
def test_a_drafter_with_the_target_s_weights_is_correct_to_its_full_depth(temperature: float, batch: int) -> None:
    target = Target.wrap(tiny_model())
    bounds = TreeBounds(max_depth=3, width=1, children=1)
    drafters = {
        "draft-model": DraftModelDrafter(target, VOCAB, batch, 300, bounds, Free()),
        "prompt-lookup": PromptLookupDrafter(VOCAB),
    }
    prompts = [(Prompt(f"p{seed}", "made up", ()), [(seed + 7 * at) % VOCAB for at in range(20)]) for seed in range(3)]
    settings = SamplingSettings(41, temperature, ignore_eos=True)
    found = measure_acceptance(target, drafters, prompts, settings, 16, 300, batch)
    own, lookup = found["draft-model"], found["prompt-lookup"]
    assert own["tokens"] == lookup["tokens"] == 3 * 40
    assert own["mean_generated_length"] == pytest.approx(4.0)
    assert own["acceptance_by_depth"][:4] == [1.0, 1.0, 1.0, 0.0]
    assert own["nodes_per_pass"] == 3.0
    assert 1.0 <= lookup["mean_generated_length"] < 4.0
    assert lookup["acceptance_by_depth"] == sorted(lookup["acceptance_by_depth"], reverse=True)
    assert own["identical"]
    assert lookup["identical"]
