"""Loads hierarchy stacks: draft models, early exits of the target, and retrieval at the bottom."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from suffolk.datastore.checks import check_choice
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.retriever import Retriever
from suffolk.serving.decoding.drafters.calibration.calibration import Calibration, Part
from suffolk.serving.decoding.drafters.drafter_entry import LoadContext, Options
from suffolk.serving.decoding.drafters.hierarchy.drafter import HierarchyDrafter
from suffolk.serving.decoding.drafters.hierarchy.model_level import ModelLevel
from suffolk.serving.decoding.drafters.hierarchy.recursion import StackedLevel
from suffolk.serving.decoding.drafters.hierarchy.retrieval_level import RetrievalLevel
from suffolk.serving.decoding.drafters.hierarchy.stack_spec import (
    DRAFT_MODEL,
    RETRIEVAL,
    StackLevel,
    read_stack,
    require_stack,
)
from suffolk.serving.decoding.drafters.neural.draft_model.drafter import require_same_tokens
from suffolk.serving.decoding.drafters.neural.early_exit.config import ExitConfig, require_exit
from suffolk.serving.decoding.drafters.neural.early_exit.drafter import load_exit
from suffolk.serving.decoding.drafters.neural.early_exit.model import shallow
from suffolk.serving.decoding.drafters.retrieval.datastore import DatastoreDrafter
from suffolk.serving.decoding.drafters.retrieval.limits import Limits
from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.drafters.retrieval.retrieval_source import RetrievalSource
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.cost_store import find_costs
from suffolk.serving.decoding.engine.model.target import Target


def load(context: LoadContext, options: Options) -> HierarchyDrafter:
    """Load the drafter for its entry in the registry. Raises the errors of ``StackLoader`` and ``StackLoader.drafter``."""
    stacks = StackLoader(
        context.require_target(),
        options.get("draft_model"),
        options.get("head", ()),
        context.retrievers,
        context.limits,
        context.dtype,
        context.calibration,
    )
    return stacks.drafter(options["levels"], context.slots, context.capacity)


class StackLoader:
    """Makes hierarchy drafters for one target. Each model is loaded once, and measured once per slot count. Not thread-safe."""

    def __init__(
        self,
        target: Target,
        draft_model: str | None = None,
        heads: Sequence[Path] = (),
        retrievers: Sequence[Retriever] = (),
        limits: Limits | None = None,
        dtype: str = "auto",
        calibration: Calibration | None = None,
    ) -> None:
        """``heads``: folders of trained exits, for the exit levels with the same numbers of layers.

        Other arguments: as in ``LoadContext``.

        Raises the errors of ``ExitConfig.load``, and InvalidArgument if two of ``heads`` have the same number of layers.
        """
        self._target, self._draft_model, self._dtype = target, draft_model, dtype
        self._exits = _by_layers(heads)
        self._retrievers, self._limits = list(retrievers), limits
        self._calibration = None if calibration is None else Part(calibration, HierarchyDrafter.name)
        self._models: dict[str, Target] = {}
        self._costs: dict[tuple[str, int], CostModel] = {}

    def drafter(
        self, levels: str | Sequence[StackLevel], slots: int = 8, capacity: int = 4096, thrifty: bool = True
    ) -> HierarchyDrafter:
        """Make the drafter of a stack for an engine of ``slots`` and ``capacity``.

        Raises:
            InvalidArgument: ``levels`` are not a stack (``require_stack``), a level lacks its model or datastore, or a level has
                all layers of the target.
            NotFound, Corruption, Unsupported, ResourceExhausted: as ``Target.load`` and ``load_exit``.
        """
        stack = read_stack(levels) if isinstance(levels, str) else tuple(levels)
        require_stack(stack)
        made: list[StackedLevel] = []
        for level in stack:
            if level.is_retrieval:
                made.append(RetrievalLevel(level.name, self.sources(level.name), level.tokens))
            else:
                model = self.model(level.name)
                costs = self.costs(level.name, slots).copy()  # each drafter corrects its own copy
                made.append(ModelLevel(level.name, level.tokens, model, costs, slots, capacity, level.temperature))
        return HierarchyDrafter(made, self._target.vocab_size, self._target.eos_ids, slots, thrifty)

    def model(self, name: str) -> Target:
        """The model of the level ``name``. Raises the errors of ``drafter``, and InvalidArgument if it is retrieval."""
        if name not in self._models:
            self._models[name] = self._load(StackLevel(name, 1))
        return self._models[name]

    def costs(self, name: str, slots: int = 1) -> CostModel:
        """The costs of the level's passes for ``slots`` requests, stored or measured now. Raises the errors of ``model``."""
        key = name, slots
        if key not in self._costs:
            self._costs[key] = find_costs(self.model(name), slots).costs
        return self._costs[key]

    def sources(self, name: str) -> list[RetrievalSource]:
        """New sources for the level ``name``. Raises InvalidArgument if it is not retrieval, or lacks a datastore."""
        check_choice("level", name, RETRIEVAL)
        vocab_size = self._target.vocab_size
        if name == PromptLookupDrafter.name:
            return [PromptLookupDrafter(vocab_size, self._limits, self._calibration)]
        if not self._retrievers:
            raise InvalidArgument(f"level {name} needs a datastore (on the command line: --datastore STORE)")
        return [
            DatastoreDrafter(each, vocab_size, self._limits, self._calibration, prefetch=False)
            for each in self._retrievers
        ]

    def _load(self, level: StackLevel) -> Target:
        if level.is_retrieval:
            raise InvalidArgument(f"level {level.name} is searched and has no model; name {DRAFT_MODEL} or exit-N")
        layers = level.exit_layers
        if layers is not None:
            require_exit(f"layers of level {level.name}", layers, self._target.layers)
            folder = self._exits.get(layers)
            return shallow(self._target, layers) if folder is None else load_exit(folder, self._target)
        if self._draft_model is None:
            raise InvalidArgument(f"level {DRAFT_MODEL} needs a model (on the command line: --draft-model MODEL)")
        model = Target.load(self._draft_model, self._dtype, str(self._target.device), exact="near-ties")
        require_same_tokens(model, self._target)
        return model


def _by_layers(heads: Sequence[Path]) -> dict[int, Path]:
    """The folders of trained exits by their number of layers. Raises the errors of ``StackLoader``."""
    found: dict[int, Path] = {}
    for folder in heads:
        layers = ExitConfig.load(folder).layers
        if layers in found:
            raise InvalidArgument(
                f"heads {found[layers]} and {folder} are both level exit-{layers}; leave one of them out"
            )
        found[layers] = folder
    return found
