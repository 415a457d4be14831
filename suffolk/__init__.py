"""Suffolk: faster decoding from text you already have.

    import suffolk
    store = suffolk.open("store/")                      # or "grpc://host:port/name"
    store.lookup(ids)                                   # Match(length=7, count=42)
    store.draft(ids, max_nodes=16)                      # DraftTree

Decoding, many requests at once, from threads or from an event loop:

    import asyncio
    import suffolk

    target = suffolk.Target.load("model/")              # or a hub name
    drafter = suffolk.make_drafter("prompt-lookup", target.vocab_size)
    prompt = target.tokenizer("one two three, one two").input_ids
    settings = suffolk.SamplingSettings(max_new_tokens=30, temperature=0.7, seed=1)

    with suffolk.Engine(target, {"prompt-lookup": drafter}) as engine:
        generation = engine.generate(prompt, settings, "prompt-lookup")
        for step in generation:                         # as it comes; generation.cancel() ends it
            print(step.text, end="")

        async def generate() -> list[int]:
            return [token async for step in engine.generate(prompt, settings) for token in step.tokens]

        assert asyncio.run(generate()) == generation.tokens  # drafts do not change the text

An engine in another process, which 'suffolk worker' is, answers ``suffolk.connect_worker("grpc://host:port").generate(...)``.

docs/DECODING.md shows more: several requests, processors, log-probabilities, drafters of your own.

The names here are the public interface; everything behind them may move.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datastore import ContextIndex, Datastore, DraftTree, Match, Retriever, Source, __version__, open_datastore
from datastore.errors import InvalidArgument, SuffolkError
from serving.transport.url import is_url

if TYPE_CHECKING:
    from serving.decoding.cost_model import CostModel
    from serving.decoding.cost_store import find_costs
    from serving.decoding.drafter import Drafter, DraftRequest, FeatureDrafter, SampledChain
    from serving.decoding.engine import Engine
    from serving.decoding.generation import Generation
    from serving.decoding.request import Step
    from serving.decoding.settings import SamplingSettings
    from serving.decoding.target import Target
    from serving.draft_service.client import RemoteDatastore
    from serving.drafters.choose import make_drafter
    from serving.drafters.limits import Limits
    from serving.drafters.load import load_models
    from serving.drafters.model_sources import ModelSources
    from serving.worker.client import connect_worker

__all__ = [
    "ContextIndex",
    "CostModel",
    "Datastore",
    "DraftRequest",
    "DraftTree",
    "Drafter",
    "Engine",
    "FeatureDrafter",
    "Generation",
    "Limits",
    "Match",
    "ModelSources",
    "Retriever",
    "SampledChain",
    "SamplingSettings",
    "Source",
    "Step",
    "SuffolkError",
    "Target",
    "__version__",
    "connect_worker",
    "find_costs",
    "load_models",
    "make_drafter",
    "open",
]

_LAZY = {
    "CostModel": "serving.decoding.cost_model",
    "DraftRequest": "serving.decoding.drafter",
    "Drafter": "serving.decoding.drafter",
    "Engine": "serving.decoding.engine",
    "FeatureDrafter": "serving.decoding.drafter",
    "Generation": "serving.decoding.generation",
    "Limits": "serving.drafters.limits",
    "ModelSources": "serving.drafters.model_sources",
    "SampledChain": "serving.decoding.drafter",
    "SamplingSettings": "serving.decoding.settings",
    "Step": "serving.decoding.request",
    "Target": "serving.decoding.target",
    "connect_worker": "serving.worker.client",
    "find_costs": "serving.decoding.cost_store",
    "load_models": "serving.drafters.load",
    "make_drafter": "serving.drafters.choose",
}
"""Names that torch or gRPC come with: loaded when somebody asks for them."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def open(path_or_url: str | Path, residency: str = "mmap") -> Datastore | RemoteDatastore:
    """A datastore on disk, or one behind a draft service (``grpc://host:port/name``): the same methods.

    ``residency`` says how files on disk are kept in memory (``datastore.open_datastore``); for a service, its server decides.

    Raises:
        NotFound, Corruption, Unsupported, ResourceExhausted: see ``datastore.open_datastore``.
        InvalidArgument, Unavailable: see ``serving.draft_service.client.connect``.
    """
    if isinstance(path_or_url, str) and is_url(path_or_url):
        from serving.draft_service.client import connect  # gRPC is loaded only by those who use it

        if residency != "mmap":
            raise InvalidArgument(f"residency is {residency!r} for {path_or_url}; give it to 'suffolk serve' there")
        return connect(path_or_url)
    return open_datastore(path_or_url, residency)
