"""Drafters by name, for command lines and configurations."""

from __future__ import annotations

from collections.abc import Sequence

from suffolk.datastore.errors import InvalidArgument, Unsupported
from suffolk.datastore.retriever import Retriever
from suffolk.serving.drafters.calibration.calibration import Calibration
from suffolk.serving.drafters.hybrid.drafter import HybridDrafter
from suffolk.serving.drafters.retrieval.datastore import DatastoreDrafter
from suffolk.serving.drafters.retrieval.inflight_call import LaterRetriever
from suffolk.serving.drafters.retrieval.limits import Limits
from suffolk.serving.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.drafters.retrieval.retrieval_source import RetrievalSource
from suffolk.serving.engine.loop.drafter import Drafter

_HEAD = "--head FOLDER"
MODELS = {
    "draft-model": "--draft-model MODEL",
    "early-exit": f"--exit-layers N or {_HEAD}",
    "redrafter": _HEAD,
    "eagle": _HEAD,
    "hierarchy": "--levels LEVELS",
    "token-recycling": "--recycle",
}
"""Drafters that need a model, and how a command line names them (``load.py``)."""
READERS = ("redrafter", "eagle")
"""Those that read the model's hidden states, which compiled passes do not give."""
NAMES = ("none", "datastore", "prompt-lookup", "hybrid", *MODELS)


def make_drafter(
    name: str,
    vocab_size: int,
    retrievers: Retriever | list[Retriever] | tuple[Retriever, ...] = (),
    limits: Limits | None = None,
    models: Sequence[Drafter] = (),
    calibration: Calibration | None = None,
    ahead: bool | None = None,
) -> Drafter | None:
    """The drafter called ``name``; None for "none".

    ``vocab_size`` is the target's; ``retrievers``, one or several, are all asked; ``models`` are networks that are loaded,
    which hybrid drafts take besides; ``calibration``: what drafts have been worth, shared by all drafters of an engine;
    ``ahead``: as ``DatastoreDrafter``. Raises InvalidArgument for an unknown name, or if it needs a retriever or a network and
    none is given.
    """
    if name == "none":
        return None
    if name in MODELS:
        for model in models:
            if model.name == name:
                return model
        raise InvalidArgument(f"drafter {name} needs a model that is loaded (on the command line: {MODELS[name]})")
    if name == "prompt-lookup":
        return PromptLookupDrafter(vocab_size, limits, calibration)
    if name not in NAMES:
        raise InvalidArgument(f"drafter {name!r} is unknown; use one of {', '.join(NAMES)}")
    stores = retrievers if isinstance(retrievers, tuple | list) else [retrievers]
    if not stores and not (name == "hybrid" and models):
        raise InvalidArgument(
            f"drafter {name} needs a datastore; open one (on the command line: --datastore PATH or grpc://HOST:PORT/NAME)"
        )
    for store in stores:
        if not hasattr(store, "draft_batch"):
            raise InvalidArgument(f"drafter {name}: {store!r} is no datastore; open it first, with suffolk.open")
    calibration = calibration or Calibration()
    drafters: list[RetrievalSource] = [
        DatastoreDrafter(store, vocab_size, limits, calibration, ahead) for store in stores
    ]
    if name == "hybrid":
        texts = [PromptLookupDrafter(vocab_size, limits, calibration), *drafters]
        return HybridDrafter(texts, models, calibration, vocab_size)
    return drafters[0] if len(drafters) == 1 else HybridDrafter(drafters, calibration=calibration)


def require_match(retriever: Retriever, store_name: str, limits: Limits, model_name: str, fingerprint: str) -> None:
    """Nothing, if the datastore can draft for the model.

    Raises:
        InvalidArgument: ``limits`` reach further than its suffixes are sorted, or than its service drafts.
        Unsupported: it was built with another tokenizer than the model's, whose fingerprint is given.
    """
    if isinstance(retriever, LaterRetriever):
        limits.require_served()
    facts = retriever.info()
    limits.require_within(int(facts["order_depth"]))
    built_with = facts.get("tokenizer")
    if built_with is not None and built_with != fingerprint:
        raise Unsupported(
            f"datastore {store_name} was built with tokenizer {str(built_with)[:12]}, model {model_name} has {fingerprint[:12]}; "
            f"build one for this model: suffolk build --tokenizer {model_name} --output STORE corpus..."
        )
