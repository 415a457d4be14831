"""A draft model by its name, found to fit the target."""

from __future__ import annotations

from pathlib import Path

from suffolk.datastore.errors import Unsupported
from suffolk.serving.drafters.drafter_entry import LoadContext, Options
from suffolk.serving.drafters.neural.draft_model.drafter import DraftModelDrafter
from suffolk.serving.engine.costs.cost_store import find_costs
from suffolk.serving.engine.model.int8_linear import compress
from suffolk.serving.engine.model.target import Target


def load(context: LoadContext, options: Options) -> DraftModelDrafter:
    """The drafter of the registry. Raises as ``load_draft_model``."""
    name = options["draft_model"]
    drafter = load_draft_model(name, context.require_target(), context.slots, context.capacity, context.dtype)
    context.calibrate(drafter, Path(name).name)
    return drafter


def load_draft_model(
    name: str, target: Target, slots: int = 8, capacity: int = 4096, dtype: str = "auto"
) -> DraftModelDrafter:
    """Load a smaller model of the target's family as its drafter, on the target's device. What its passes cost is what
    ``suffolk profile`` stored for it, or a quick look of seconds.

    ``slots`` and ``capacity``: the engine's, see ``DraftModelDrafter``. Raises as ``Target.load``, and Unsupported if its token
    ids do not mean what the target's do.
    """
    model = Target.load(name, dtype, str(target.device), slots * capacity)
    require_same_tokens(model, target)
    compress(model.model)
    return DraftModelDrafter(model, target.vocab_size, slots, capacity, costs=find_costs(model, slots).costs)


def require_same_tokens(model: Target, target: Target) -> None:
    """Nothing, unless both have tokenizers and these give a token different ids: then Unsupported."""
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
