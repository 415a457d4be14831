"""Names that command lines know without loading drafters are those of the drafters."""

from __future__ import annotations

from suffolk.serving.drafters.drafter_config import HIERARCHY, RECYCLING
from suffolk.serving.drafters.hierarchy.drafter import HierarchyDrafter
from suffolk.serving.drafters.hierarchy.stack_spec import DRAFT_MODEL
from suffolk.serving.drafters.neural.draft_model.drafter import DraftModelDrafter
from suffolk.serving.drafters.neural.eagle.config import FORMAT as EAGLE
from suffolk.serving.drafters.neural.eagle.drafter import EagleDrafter
from suffolk.serving.drafters.retrieval.token_recycling import TokenRecyclingDrafter


def test_names_are_those_of_the_drafters() -> None:
    known = DRAFT_MODEL, EAGLE, HIERARCHY, RECYCLING
    made = DraftModelDrafter, EagleDrafter, HierarchyDrafter, TokenRecyclingDrafter
    assert known == tuple(drafter.name for drafter in made)
