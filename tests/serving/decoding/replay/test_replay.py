"""Replay gives the drafts, passes and counts of a live engine that verifies every node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

from suffolk.serving.decoding.drafters.hybrid.drafter import HybridDrafter
from suffolk.serving.decoding.drafters.neural.draft_model.drafter import DraftModelDrafter
from suffolk.serving.decoding.drafters.neural.early_exit.drafter import EarlyExitDrafter
from suffolk.serving.decoding.drafters.neural.early_exit.model import shallow
from suffolk.serving.decoding.drafters.neural.redrafter.model import RedrafterHead
from suffolk.serving.decoding.drafters.neural.tree_bounds import TreeBounds
from suffolk.serving.decoding.drafters.retrieval.datastore import DatastoreDrafter
from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.drafters.retrieval.token_recycling import TokenRecyclingDrafter
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.loop.drafter import Drafter
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.loop.generation import Generation
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.stats import GenerationStats
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.decoding.replay.read import read_recordings
from suffolk.serving.decoding.replay.recorded_states import RecordedStates
from suffolk.serving.decoding.replay.recorder import Recorder
from suffolk.serving.decoding.replay.recording import Recording
from suffolk.serving.decoding.replay.replayer import Replayer
from tests.support import eagle_heads, heads, hierarchies
from tests.support.brute_force import BruteForceRetriever
from tests.support.drafters import Free, alone, eager_loop
from tests.support.tiny_models import VOCAB, tiny_model

NODES = 24
CAPACITY = 400
PROMPTS = [[(3 * at + at // 7 * start) % VOCAB for at in range(12 + 5 * start)] for start in range(1, 4)]
Make = Callable[[Target], Drafter]


def settings_of(number: int, temperature: float) -> SamplingSettings:
    return SamplingSettings(24 + number, temperature, seed=number)


def live(target: Target, drafter: Drafter, temperature: float) -> list[Recording]:
    """Decode all prompts, one after the other, with a loop that verifies every node."""
    loop = eager_loop(target, {drafter.name: drafter}, capacity=CAPACITY)
    found = []
    for number, prompt in enumerate(PROMPTS, 1):
        request = Request(number, target, prompt, settings_of(number, temperature), drafter.name, NODES)
        loop.join(request)
        while loop.running:
            loop.step()
        found.append(Recording.of(Generation(request, lambda generation: None), target.vocab_size))
    drafter.close()
    return found


def replayed(target: Target | None, drafter: Drafter, texts: list[Recording]) -> list[GenerationStats]:
    states = None if target is None else RecordedStates(target, drafter, CAPACITY)
    replayer = Replayer(drafter, NODES, states=states)
    found = [replayer.replay(text).stats for text in texts]
    drafter.close()
    return found


def require_same(texts: list[Recording], found: list[GenerationStats]) -> None:
    for text, stats in zip(texts, found, strict=True):
        assert stats.tokens == len(text.generated)
        assert {name: getattr(stats, name) for name in text.counts} == text.counts


def store(target: Target) -> BruteForceRetriever:
    """A datastore of the first halves of some answers, with noise between them."""
    texts = [[*prompt, *alone(target, prompt, SamplingSettings(20))] for prompt in PROMPTS[:2]]
    return BruteForceRetriever(texts, VOCAB)


RETRIEVAL: dict[str, Make] = {
    "prompt-lookup": lambda target: PromptLookupDrafter(VOCAB),
    "datastore": lambda target: DatastoreDrafter(store(target), VOCAB),
    "hybrid": lambda target: HybridDrafter([PromptLookupDrafter(VOCAB), DatastoreDrafter(store(target), VOCAB)]),
}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("name", RETRIEVAL)
def test_retrieval_is_replayed_without_a_target(name: str, temperature: float) -> None:
    """Drafters learn from recording to recording. So another order, or another state at the start, changes the counts."""
    target = Target.wrap(tiny_model())
    texts = live(target, RETRIEVAL[name](target), temperature)
    if not temperature:
        assert sum(text.counts["accepted"] for text in texts) > 3
    require_same(texts, replayed(None, RETRIEVAL[name](target), texts))


def noisy_copy(seed: int = 1) -> Target:
    """The target of the EAGLE heads with slightly different weights. It often agrees with the target."""
    model, generator = tiny_model(), torch.Generator().manual_seed(seed)
    model.load_state_dict(eagle_heads.tiny_target().model.state_dict())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.002 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    return Target.wrap(model)


@cache
def trained_recurrent_head(target: Target) -> RedrafterHead:
    return heads.train(heads.random_head(target), heads.texts_of(target, 8, SamplingSettings(40)), 40, rate=0.02)


BOUNDS = TreeBounds(max_depth=4, width=2, children=2)
BOUNDS = eagle_heads.eagle_bounds(3, 4, 16)
MODELS: dict[str, Make] = {
    "draft-model": lambda target: DraftModelDrafter(noisy_copy(), VOCAB, 1, CAPACITY, BOUNDS, Free()),
    "early-exit": lambda target: EarlyExitDrafter(shallow(target, 1), BOUNDS, Free()),
    "eagle": lambda target: eagle_heads.drafter_of(eagle_heads.trained_head(3), bounds=BOUNDS),
    "redrafter": lambda target: heads.drafter_of(trained_recurrent_head(target), target),
    "hierarchy": lambda target: hierarchies.hierarchy(4, target, noisy_copy(), 1, CAPACITY),
    "token-recycling": lambda target: TokenRecyclingDrafter(),
    "hybrid of text and recycling": lambda target: HybridDrafter(
        [PromptLookupDrafter(VOCAB)], [TokenRecyclingDrafter()]
    ),
    "hybrid of text and early exit": lambda target: HybridDrafter(
        [PromptLookupDrafter(VOCAB)], [EarlyExitDrafter(shallow(target, 1), BOUNDS, Free())]
    ),
    "hybrid of text and eagle": lambda target: HybridDrafter(
        [DatastoreDrafter(store(target), VOCAB)], [eagle_heads.drafter_of(eagle_heads.trained_head(3), bounds=BOUNDS)]
    ),
}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("name", MODELS)
def test_neural_drafters_are_replayed_from_one_pass_over_a_text(name: str, temperature: float) -> None:
    target = eagle_heads.tiny_target()
    texts = live(target, MODELS[name](target), temperature)
    assert sum(text.counts["accepted"] for text in texts) > 3
    require_same(texts, replayed(target, MODELS[name](target), texts))


def test_recordings_of_an_engine_are_replayed_from_their_file(tmp_path: Path) -> None:
    """The requests run at the same time with different settings, and one is cancelled. The file holds the generated texts."""
    target, path = Target.wrap(tiny_model()), tmp_path / "day.jsonl"
    planner = CostModel([1, 64], [1.0, 1.0])
    with (
        Recorder(path, target.vocab_size, "tiny") as recorder,
        Engine(target, {"prompt-lookup": PromptLookupDrafter(VOCAB)}, planner, 4, CAPACITY) as engine,
    ):
        running = [
            engine.generate(prompt, settings_of(number, 0.4 * number), "prompt-lookup", NODES)
            for number, prompt in enumerate(PROMPTS)
        ]
        for number, generation in enumerate(running):
            list(generation)
            assert recorder.add(generation, f"group {number % 2}")
        cancelled = engine.generate(PROMPTS[0], SamplingSettings(300))
        cancelled.cancel()
        list(cancelled)
        assert not recorder.add(cancelled)
    texts = read_recordings([path])
    assert [text.generated.tolist() for text in texts] == [generation.tokens for generation in running]
    assert [text.settings for text in texts] == [settings_of(number, 0.4 * number) for number in range(3)]
    assert [text.group for text in texts] == ["group 0", "group 1", "group 0"]
    assert [text.counts["steps"] for text in texts] == [generation.stats.steps for generation in running]
    found = replayed(None, PromptLookupDrafter(VOCAB), texts)
    assert [stats.tokens for stats in found] == [len(text.generated) for text in texts]


def test_a_drafted_end_of_text_saves_no_pass() -> None:
    """As in the engine, drafts continue past the end of a text, and the last token of the text may be drafted."""
    target = Target.wrap(tiny_model())
    [long] = [text for text in live(target, PromptLookupDrafter(VOCAB), 0.0) if len(text.prompt) == len(PROMPTS[0])]
    ended = replace(target, eos_ids=frozenset({int(long.generated[12])}))
    texts = live(ended, RETRIEVAL["datastore"](target), 0.0)
    assert {text.finish for text in texts} >= {"eos"}
    assert sum(text.counts["accepted"] - text.counts["earned"] for text in texts) > 0
    require_same(texts, replayed(None, RETRIEVAL["datastore"](target), texts))


def test_planned_drafts_never_lose_much_and_right_ones_gain() -> None:
    target = Target.wrap(tiny_model())
    costs = CostModel([1, 2, 64], [1.0, 1.05, 2.0])
    texts = live(target, PromptLookupDrafter(VOCAB), 0.0)
    for name, least in (("datastore", 1.02), ("prompt-lookup", 0.97)):
        replayer = Replayer(RETRIEVAL[name](target), NODES, costs, draft_seconds=0.001)
        found = [replayer.replay(text) for text in texts]
        assert sum(each.plain_seconds for each in found) == sum(len(text.generated) - 1 for text in texts)
        assert sum(each.plain_seconds for each in found) / sum(each.seconds for each in found) > least
