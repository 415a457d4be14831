"""Loads a draft model, and checks that it fits the target."""

from __future__ import annotations

from pathlib import Path

from suffolk.datastore.errors import Unsupported
from suffolk.serving.decoding.drafters.drafter_entry import LoadContext, Options
from suffolk.serving.decoding.drafters.neural.draft_model.drafter import DraftModelDrafter
from suffolk.serving.decoding.engine.costs.cost_store import find_costs
from suffolk.serving.decoding.engine.model.int8_linear import compress
from suffolk.serving.decoding.engine.model.target import Target


def load(context: LoadContext, options: Options) -> DraftModelDrafter:
    """Load the registry's drafter. Raises as ``load_draft_model``."""
    name = options["draft_model"]
    drafter = load_draft_model(name, context.require_target(), context.slots, context.capacity, context.dtype)
    context.calibrate(drafter, Path(name).name)
    return drafter


def load_draft_model(
    name: str, target: Target, slots: int = 8, capacity: int = 4096, dtype: str = "auto"
) -> DraftModelDrafter:
    """Load a smaller model of the target's family as a drafter, on the target's device.

    Pass costs come from ``suffolk profile``. If none are stored, a measurement takes seconds.

    ``slots`` and ``capacity``: as in ``DraftModelDrafter``. Raises as ``Target.load`` and ``require_same_tokens``.
    """
    model = Target.load(name, dtype, str(target.device), slots * capacity, exact="near-ties")
    require_same_tokens(model, target)
    compress(model.model)
    return DraftModelDrafter(model, target.vocab_size, slots, capacity, costs=find_costs(model, slots).costs)


def require_same_tokens(model: Target, target: Target) -> None:
    """Raise Unsupported if the tokenizers of both models give a token different ids."""
    if model.tokenizer is None or target.tokenizer is None:
        return
    own, other = model.tokenizer.get_vocab(), target.tokenizer.get_vocab()
    if own == other:
        return
    token = min(
        (token for token in own.keys() | other.keys() if own.get(token) != other.get(token)),
        key=lambda token: min(own.get(token, len(own)), other.get(token, len(other))),
    )
    raise Unsupported(
        f"draft model {model.name} has another tokenizer than {target.name}: token {token!r} is {own.get(token, 'missing')} there "
        f"and {other.get(token, 'missing')} here; use a smaller model of the same family"
    )
