"""Drafters that are networks, by what a command line names: draft models, trained heads, the target's own layers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from datastore.errors import Corruption, InvalidArgument, NotFound, Unsupported
from datastore.retriever import Retriever
from serving.decoding.cost_store import find_costs
from serving.decoding.drafter import Drafter
from serving.decoding.target import Target, find_folder
from serving.drafters.calibration.calibration import Calibration
from serving.drafters.draft_model.load import load_draft_model
from serving.drafters.eagle.load import load_eagle
from serving.drafters.early_exit.config import KIND as EARLY_EXIT
from serving.drafters.early_exit.config import ExitConfig, require_exit
from serving.drafters.early_exit.drafter import EarlyExitDrafter
from serving.drafters.early_exit.load import load_exit
from serving.drafters.early_exit.shallow import shallow
from serving.drafters.hierarchy.drafter import HierarchyDrafter
from serving.drafters.hierarchy.load import Stacks
from serving.drafters.hierarchy.stack_spec import DRAFT_MODEL, read_stack
from serving.drafters.limits import Limits
from serving.drafters.network import NetworkDrafter
from serving.drafters.redrafter.checkpoint import APPLE_TYPE
from serving.drafters.redrafter.config import FORMAT as REDRAFTER
from serving.drafters.redrafter.load import load_redrafter
from serving.drafters.token_recycling import TokenRecyclingDrafter

EAGLE = "eagle"
HIERARCHY = HierarchyDrafter.name
RECYCLING = TokenRecyclingDrafter.name


@dataclass(frozen=True, slots=True)
class ModelSources:
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
        """The names of the drafters that will be made. Raises as ``kind_of``, NotFound if the draft model is a folder that does
        not exist, and InvalidArgument if two have one name."""
        if self.draft_model is not None:
            find_folder(self.draft_model)
        alone = self.alone()
        names = ["draft-model"] if alone.draft_model is not None else []
        names += [EARLY_EXIT] if self.exit_layers is not None else []
        names += [kind_of(folder) for folder in alone.heads]
        names += [HIERARCHY] if self.levels is not None else []
        names += [RECYCLING] if self.recycle else []
        for name in names:
            if names.count(name) > 1:
                raise InvalidArgument(f"two drafters are called {name}; leave one of them out")
        return names

    def alone(self) -> ModelSources:
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

    def only(self, name: str) -> ModelSources:
        """What the drafter of that name is made of; everything for "hybrid". Raises as ``kinds``."""
        if name == "hybrid":
            return self
        alone = self.alone()
        if name == HIERARCHY:
            used = self.draft_model if alone.draft_model is None else None
            heads = [each for each in self.heads if each not in alone.heads]
            return replace(self, draft_model=used, exit_layers=None, heads=heads, recycle=False)
        return ModelSources(
            draft_model=alone.draft_model if name == "draft-model" else None,
            heads=[folder for folder in alone.heads if kind_of(folder) == name],
            exit_layers=alone.exit_layers if name == EARLY_EXIT else None,
            dtype=self.dtype,
            recycle=alone.recycle and name == RECYCLING,
        )


def load_models(
    target: Target,
    sources: ModelSources,
    slots: int = 8,
    capacity: int = 4096,
    retrievers: Sequence[Retriever] = (),
    limits: Limits | None = None,
    calibration: Calibration | None = None,
) -> list[Drafter]:
    """The drafters of ``sources`` for an engine of that many ``slots`` and ``capacity``; takes seconds to measure their costs.

    ``retrievers`` and ``limits``: for the retrieval level of ``sources.levels``. ``calibration``: what drafts have been worth,
    under the names of the drafters and of their folders.

    Raises as ``load_draft_model``, ``shallow``, ``load_head`` and ``Stacks.drafter``, and InvalidArgument if ``exit_layers`` are
    none or all.
    """
    sources.kinds()
    alone = sources.alone()
    stacked: list[Drafter] = []
    if sources.levels is not None:
        parts = [folder for folder in sources.heads if folder not in alone.heads]
        stacks = Stacks(target, sources.draft_model, parts, retrievers, limits, sources.dtype)
        stacked = [stacks.drafter(sources.levels, slots, capacity)]
    recycling: list[Drafter] = [TokenRecyclingDrafter(limits, calibration)] if sources.recycle else []
    return [*_load_alone(target, alone, slots, capacity, calibration), *stacked, *recycling]


def _load_alone(
    target: Target, sources: ModelSources, slots: int, capacity: int, calibration: Calibration | None
) -> list[Drafter]:
    if sources.exit_layers is not None:
        require_exit("exit_layers", sources.exit_layers, target.layers)
    drafters: list[Drafter] = []
    if sources.draft_model is not None:
        drafters.append(load_draft_model(sources.draft_model, target, slots, capacity, dtype=sources.dtype))
    if sources.exit_layers is not None:
        drafters.append(_early_exit(shallow(target, sources.exit_layers), slots))
    drafters += [load_head(folder, target, slots, capacity) for folder in sources.heads]
    if calibration is not None:
        names = [*filter(None, [sources.draft_model]), *([f"{sources.exit_layers}"] if sources.exit_layers else [])]
        for drafter, name in zip(drafters, [*names, *map(str, sources.heads)], strict=True):
            assert isinstance(drafter, NetworkDrafter)
            drafter.calibrate(calibration.network(f"{drafter.name} {Path(name).name}"))
    return drafters


def load_head(folder: Path, target: Target, slots: int = 8, capacity: int = 4096) -> Drafter:
    """The drafter of a trained head. Raises as ``kind_of``, and what its own loader raises."""
    kind = kind_of(folder)
    if kind == REDRAFTER:
        return load_redrafter(folder, target, slots)
    if kind == EAGLE:
        return load_eagle(folder, target, slots, capacity)
    return _early_exit(load_exit(folder, target), slots)


def kind_of(folder: Path) -> str:
    """What the head in ``folder`` is: the name of its drafter. Folders of others that are no Apple ReDrafter are taken for EAGLE's,
    which have no mark of their own: its loader says what is wrong with them.

    Raises:
        NotFound: no config.json there.
        Corruption: it is no JSON object.
        Unsupported: one of ours, of no kind that is known, or a language model.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NotFound(
            f"head {folder}: config.json cannot be read ({error.strerror}); name a trained head's folder"
        ) from error
    except ValueError as error:
        raise Corruption(f"{path} is no JSON: {error}; fetch or train the head again") from error
    if not isinstance(config, dict):
        raise Corruption(f"{path} is no JSON object; fetch or train the head again")
    if "suffolk" not in config:
        if _is_language_model(folder, config):
            raise Unsupported(f"head {folder}: it is a language model and no head; --draft-model takes it")
        return REDRAFTER if config.get("model_type") == APPLE_TYPE else EAGLE
    kind = config["suffolk"]
    if kind not in (EARLY_EXIT, REDRAFTER, EAGLE):
        raise Unsupported(f"head {folder}: its kind is {kind!r}; known are {EARLY_EXIT}, {REDRAFTER} and {EAGLE}")
    return str(kind)


def _is_language_model(folder: Path, config: dict[str, Any]) -> bool:
    """EAGLE heads too are configured as language models, but all have a layer that fuses their two inputs."""
    names = _tensor_names(folder)
    return "architectures" in config and bool(names) and not names & {"fc.weight", "fusion_fc.weight"}


def _tensor_names(folder: Path) -> set[str]:
    """Of the weights in ``folder``; none where they cannot be told without reading them, or at all."""
    try:
        index = folder / "model.safetensors.index.json"
        if index.is_file():
            return set(json.loads(index.read_text(encoding="utf-8"))["weight_map"])
        with safe_open(folder / "model.safetensors", "pt") as file:
            return set(file.keys())
    except (OSError, SafetensorError, ValueError, KeyError, TypeError):
        return set()


def _early_exit(model: Target, slots: int) -> EarlyExitDrafter:
    return EarlyExitDrafter(model, costs=find_costs(model, slots).costs)
