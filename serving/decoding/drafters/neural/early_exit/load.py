"""Loads early-exit drafters."""

from __future__ import annotations

from pathlib import Path

from suffolk.serving.decoding.drafters.drafter_entry import LoadContext, Options
from suffolk.serving.decoding.drafters.neural.early_exit.config import ExitConfig, require_exit
from suffolk.serving.decoding.drafters.neural.early_exit.drafter import EarlyExitDrafter
from suffolk.serving.decoding.drafters.neural.early_exit.model import ExitHead, ExitLayer, shallow
from suffolk.serving.decoding.drafters.neural.head_folder import naming
from suffolk.serving.decoding.drafters.neural.weights import FILE, fit, read_tensors
from suffolk.serving.decoding.engine.costs.cost_store import find_costs
from suffolk.serving.decoding.engine.model.target import Target


def load(context: LoadContext, options: Options) -> EarlyExitDrafter:
    """Load the registry's drafter. Raises as ``load_exit`` and ``require_exit``."""
    target = context.require_target()
    if "head" in options:
        (folder,) = options["head"]
        model, label = load_exit(folder, target), folder.name
    else:
        layers = options["exit_layers"]
        require_exit("exit_layers", layers, target.layers)
        model, label = shallow(target, layers), str(layers)
    drafter = EarlyExitDrafter(model, costs=find_costs(model, context.slots).costs)
    context.calibrate(drafter, label)
    return drafter


def load_exit(folder: Path, target: Target) -> Target:
    """The target's first layers with the trained exit in ``folder``.

    Raises:
        NotFound: a file is missing.
        Corruption: config.json or the weights are damaged, or they do not fit each other.
        Unsupported: the exit is for another model.
    """
    with naming(folder):
        head = ExitHead(target, ExitConfig.load(folder))
        head.load_state_dict(fit(read_tensors(folder / FILE), head.state_dict()))
    return with_exit(target, head)


def with_exit(target: Target, head: ExitHead) -> Target:
    """The target's first layers, with ``head`` after the last of them."""
    return shallow(target, head.config.layers, lambda layer: ExitLayer(layer, head))
