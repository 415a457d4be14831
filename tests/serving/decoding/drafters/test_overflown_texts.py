"""A text for which a network returns NaN loses its own drafts, but not those of other texts in the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import SuffolkError
from suffolk.serving.decoding.drafters.hierarchy.draft_segment import DraftSegment
from suffolk.serving.decoding.drafters.hierarchy.drafter import HierarchyDrafter
from suffolk.serving.decoding.drafters.hierarchy.level_sampling import match_draft
from suffolk.serving.decoding.drafters.neural.coupled_sampling import drafter_sampler
from suffolk.serving.decoding.drafters.neural.draft_model.drafter import DraftModelDrafter
from suffolk.serving.decoding.drafters.neural.tree_bounds import TreeBounds
from suffolk.serving.decoding.engine.costs.draft_budget import DraftBudget
from suffolk.serving.decoding.engine.loop.drafter import Drafter, DraftRequest, FeatureDrafter, SampledChain, tree_of
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support import eagle_heads, heads
from tests.support.drafters import Free
from tests.support.hierarchies import level
from tests.support.tiny_models import VOCAB, tiny_model

OVERFLOWS = VOCAB - 1
"""The token after which a network returns NaN."""
SOUND = [(7 * number) % VOCAB for number in range(30)]
BROKEN = [*SOUND[:20], OVERFLOWS, *SOUND[21:]]


def overflowing(**changes: Any) -> Target:
    model = tiny_model(**changes)
    with torch.no_grad():
        model.get_input_embeddings().weight[OVERFLOWS] = torch.nan
    return Target.wrap(model)


def draft_model() -> Drafter:
    return DraftModelDrafter(overflowing(), VOCAB, 3, 300, TreeBounds(max_depth=4, width=3, children=3), Free())


def eagle() -> Drafter:
    return eagle_heads.drafter_of(
        eagle_heads.random_head(target=eagle_heads.tiny_target()), bounds=eagle_heads.eagle_bounds(3, 4, 20)
    )


def redrafter() -> Drafter:
    target = Target.wrap(tiny_model())
    return heads.drafter_of(heads.random_head(target), target)


def hierarchy() -> Drafter:
    levels = [level(overflowing(seed=seed), tokens) for seed, tokens in ((1, 2), (0, 4))]
    return HierarchyDrafter(levels, VOCAB, slots=3)


MAKERS = {"draft-model": draft_model, "eagle": eagle, "redrafter": redrafter, "hierarchy": hierarchy}
SETTINGS = {
    "greedy": SamplingSettings(40),
    "drawn": SamplingSettings(40, 0.8, seed=3),
    "bad words": SamplingSettings(40, bad_words=((5, 7),)),
    "rejection": SamplingSettings(40, 0.8, seed=3, verification="rejection"),
    "rejection, bad words": SamplingSettings(40, 0.8, seed=3, verification="rejection", bad_words=((5, 7),)),
}


def drafts(make: Callable[[], Drafter], texts: Sequence[list[int]], settings: SamplingSettings) -> list[Any]:
    drafter = make()
    if isinstance(drafter, FeatureDrafter):
        for number, tokens in enumerate(texts):
            states = eagle_heads.features_of(tokens[:-1], drafter.layers)
            drafter.follow(number, states * torch.nan if OVERFLOWS in tokens else states)
    return list(
        drafter.propose(
            [
                DraftRequest(
                    number,
                    np.asarray(tokens, np.int32),
                    20,
                    len(tokens),
                    settings,
                    budget=DraftBudget(token_seconds=1.0),
                )
                for number, tokens in enumerate(texts)
            ]
        )
    )


def is_sound(proposal: DraftTree | SampledChain) -> bool:
    """Whether the draft has nodes, and is a valid draft of its kind."""
    try:
        tree_of(proposal).validate(VOCAB)
    except SuffolkError:
        return False
    has_laws = not isinstance(proposal, SampledChain) or bool(proposal.distributions.isfinite().all())
    return len(tree_of(proposal)) > 0 and has_laws


@pytest.mark.parametrize("way", SETTINGS)
@pytest.mark.parametrize("kind", MAKERS)
def test_a_text_without_numbers_takes_no_draft_from_another(kind: str, way: str) -> None:
    """Regression: a network that overflowed on one text used to cost all other texts their drafts, except for one level."""
    make, settings = MAKERS[kind], SETTINGS[way]
    [alone] = drafts(make, [SOUND], settings)
    sound, broken = drafts(make, [SOUND, BROKEN], settings)
    assert tree_of(sound).tokens.tolist() == tree_of(alone).tokens.tolist()
    assert tree_of(sound).parents.tolist() == tree_of(alone).parents.tolist()
    assert (is_sound(alone), is_sound(sound), is_sound(broken)) == (True, True, False)
    assert tree_of(sound).depths().max() > 1


def test_a_draft_that_laws_without_numbers_take_is_counted() -> None:
    """A level of a hierarchy drafts nothing from distributions with NaN, because no later check would detect them."""
    drafter = hierarchy()
    for tokens, missed in ((SOUND, 0), (BROKEN, 1)):
        asked = DraftRequest(missed, np.asarray(tokens, np.int32), 20, len(tokens), SETTINGS["rejection"])
        assert (len(tree_of(drafter.propose([asked])[0])) > 0, drafter.stats()["failed"]) == (not missed, missed)
    assert drafter.stats()["failed InvalidArgument"] == 1


def test_what_a_level_drew_before_it_had_no_numbers_is_handed_up() -> None:
    """Regression: the whole draft used to be lost, with ``match`` too."""
    sampler, asked = (
        drafter_sampler(SETTINGS["greedy"], VOCAB, torch.device("cpu")),
        DraftRequest(1, np.arange(3), 9, 3),
    )
    logits = torch.zeros(3, VOCAB)
    logits[0, 5] = logits[1, 6] = 9.0
    logits[2] = torch.nan
    found = match_draft(sampler, asked, (), DraftSegment((5, 6), np.ones(2)), logits)
    assert (found.tokens, len(found.draft_probs), found.is_cut) == ((5, 6), 2, True)
