"""What drafting networks are made of, looked at before anything is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.drafters.head_kind import kind_of
from suffolk.serving.drafters.hierarchy.stack_spec import DRAFT_MODEL, read_stack
from suffolk.serving.drafters.neural.early_exit.config import KIND as EARLY_EXIT
from suffolk.serving.drafters.neural.early_exit.config import ExitConfig
from suffolk.serving.engine.model.model_folder import find_folder

HIERARCHY, RECYCLING = "hierarchy", "token-recycling"


@dataclass(frozen=True, slots=True)
class DrafterConfig:
    """What drafting networks are made of.

    Attributes:
        draft_model: folder or hub name of a smaller model; None for none.
        heads: folders of trained heads.
        exit_layers: how many of the target's layers, fewer than all, draft with its own output layer; None for none.
        dtype: of the draft model, as in ``Target.load``.
        recycle: whether what the target says of all tokens drafts too, as ``token-recycling``.
        levels: a stack of levels that draft for each other, as ``read_stack`` reads it; None for none. The draft model and trained
            exits that it names are its levels, and no drafters of their own.
    """

    draft_model: str | None = None
    heads: Sequence[Path] = ()
    exit_layers: int | None = None
    dtype: str = "auto"
    levels: str | None = None
    recycle: bool = False

    def kinds(self) -> list[str]:
        """The names of the drafters that will be made. Raises as ``kind_of`` and ``find_folder``, and
        InvalidArgument if two have one name."""
        if self.draft_model is not None:
            find_folder(self.draft_model)
        alone = self.alone()
        names = [DRAFT_MODEL] if alone.draft_model is not None else []
        names += [EARLY_EXIT] if self.exit_layers is not None else []
        names += [kind_of(folder) for folder in alone.heads]
        names += [HIERARCHY] if self.levels is not None else []
        names += [RECYCLING] if self.recycle else []
        for name in names:
            if names.count(name) > 1:
                raise InvalidArgument(f"two drafters are called {name}; leave one of them out")
        return names

    def alone(self) -> DrafterConfig:
        """What drafts by itself: without ``levels`` and what these name. Raises as ``kinds``."""
        if self.levels is None:
            return self
        stack = read_stack(self.levels)
        used = any(level.name == DRAFT_MODEL for level in stack)
        exits = [level.exit_layers for level in stack if level.exit_layers is not None]
        heads = tuple(
            folder
            for folder in self.heads
            if not (kind_of(folder) == EARLY_EXIT and ExitConfig.load(folder).layers in exits)
        )
        return replace(self, draft_model=None if used else self.draft_model, heads=heads, levels=None)

    def only(self, name: str) -> DrafterConfig:
        """What the drafter of that name is made of; everything for "hybrid". Raises as ``kinds``."""
        if name == "hybrid":
            return self
        alone = self.alone()
        if name == HIERARCHY:
            used = self.draft_model if alone.draft_model is None else None
            heads = [each for each in self.heads if each not in alone.heads]
            return replace(self, draft_model=used, exit_layers=None, heads=heads, recycle=False)
        return DrafterConfig(
            draft_model=alone.draft_model if name == DRAFT_MODEL else None,
            heads=[folder for folder in alone.heads if kind_of(folder) == name],
            exit_layers=alone.exit_layers if name == EARLY_EXIT else None,
            dtype=self.dtype,
            recycle=alone.recycle and name == RECYCLING,
        )
