"""Names that command lines know without loading drafters are those of the drafters."""

from __future__ import annotations

from serving.drafters.draft_model.drafter import DraftModelDrafter
from serving.drafters.eagle.config import FORMAT as EAGLE
from serving.drafters.eagle.drafter import EagleDrafter
from serving.drafters.hierarchy.drafter import HierarchyDrafter
from serving.drafters.hierarchy.stack_spec import DRAFT_MODEL
from serving.drafters.model_sources import HIERARCHY, RECYCLING
from serving.drafters.token_recycling import TokenRecyclingDrafter


def test_names_are_those_of_the_drafters() -> None:
    known = DRAFT_MODEL, EAGLE, HIERARCHY, RECYCLING
    made = DraftModelDrafter, EagleDrafter, HierarchyDrafter, TokenRecyclingDrafter
    assert known == tuple(drafter.name for drafter in made)
