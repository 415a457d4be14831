"""Drafters that are networks, by what a command line names: draft models, trained heads, the target's own layers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from suffolk.datastore.retriever import Retriever
from suffolk.serving.drafters.calibration.calibration import Calibration
from suffolk.serving.drafters.drafter_config import DrafterConfig
from suffolk.serving.drafters.head_kind import kind_of
from suffolk.serving.drafters.hierarchy.load import Stacks
from suffolk.serving.drafters.hybrid.gated_drafter import NetworkDrafter
from suffolk.serving.drafters.neural.draft_model.load import load_draft_model
from suffolk.serving.drafters.neural.eagle.config import FORMAT as EAGLE
from suffolk.serving.drafters.neural.eagle.load import load_eagle
from suffolk.serving.drafters.neural.early_exit.config import require_exit
from suffolk.serving.drafters.neural.early_exit.drafter import EarlyExitDrafter
from suffolk.serving.drafters.neural.early_exit.load import load_exit
from suffolk.serving.drafters.neural.early_exit.shallow import shallow
from suffolk.serving.drafters.neural.redrafter.config import FORMAT as REDRAFTER
from suffolk.serving.drafters.neural.redrafter.load import load_redrafter
from suffolk.serving.drafters.retrieval.limits import Limits
from suffolk.serving.drafters.retrieval.token_recycling import TokenRecyclingDrafter
from suffolk.serving.engine.loop.drafter import Drafter
from suffolk.serving.engine.model.target import Target
from suffolk.serving.engine.policy.cost_store import find_costs


def load_models(
    target: Target,
    sources: DrafterConfig,
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
        stacks = Stacks(target, sources.draft_model, parts, retrievers, limits, sources.dtype, calibration)
        stacked = [stacks.drafter(sources.levels, slots, capacity)]
    recycling: list[Drafter] = [TokenRecyclingDrafter(limits, calibration)] if sources.recycle else []
    return [*_load_alone(target, alone, slots, capacity, calibration), *stacked, *recycling]


def _load_alone(
    target: Target, sources: DrafterConfig, slots: int, capacity: int, calibration: Calibration | None
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


def _early_exit(model: Target, slots: int) -> EarlyExitDrafter:
    return EarlyExitDrafter(model, costs=find_costs(model, slots).costs)
