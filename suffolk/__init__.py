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

from suffolk.datastore import ContextIndex, Datastore, DraftTree, Match, Retriever, Source, __version__, open_datastore
from suffolk.datastore.errors import InvalidArgument, SuffolkError
from suffolk.serving.transport.url import is_url

if TYPE_CHECKING:
    from suffolk.serving.draft_service.client import RemoteDatastore
    from suffolk.serving.drafters.choose import make_drafter
    from suffolk.serving.drafters.drafter_config import DrafterConfig
    from suffolk.serving.drafters.load import load_models
    from suffolk.serving.drafters.retrieval.limits import Limits
    from suffolk.serving.engine.loop.drafter import Drafter, DraftRequest, FeatureDrafter, SampledChain
    from suffolk.serving.engine.loop.engine import Engine
    from suffolk.serving.engine.loop.generation import Generation
    from suffolk.serving.engine.loop.request import Step
    from suffolk.serving.engine.model.target import Target
    from suffolk.serving.engine.policy.cost_model import CostModel
    from suffolk.serving.engine.policy.cost_store import find_costs
    from suffolk.serving.engine.sampling.settings import SamplingSettings
    from suffolk.serving.worker.client import connect_worker

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
    "DrafterConfig",
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
    "CostModel": "suffolk.serving.engine.policy.cost_model",
    "DraftRequest": "suffolk.serving.engine.loop.drafter",
    "Drafter": "suffolk.serving.engine.loop.drafter",
    "Engine": "suffolk.serving.engine.loop.engine",
    "FeatureDrafter": "suffolk.serving.engine.loop.drafter",
    "Generation": "suffolk.serving.engine.loop.generation",
    "Limits": "suffolk.serving.drafters.retrieval.limits",
    "DrafterConfig": "suffolk.serving.drafters.drafter_config",
    "SampledChain": "suffolk.serving.engine.loop.drafter",
    "SamplingSettings": "suffolk.serving.engine.sampling.settings",
    "Step": "suffolk.serving.engine.loop.request",
    "Target": "suffolk.serving.engine.model.target",
    "connect_worker": "suffolk.serving.worker.client",
    "find_costs": "suffolk.serving.engine.policy.cost_store",
    "load_models": "suffolk.serving.drafters.load",
    "make_drafter": "suffolk.serving.drafters.choose",
}
"""Names that torch or gRPC come with: loaded when somebody asks for them."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def open(path_or_url: str | Path, residency: str = "mmap") -> Datastore | RemoteDatastore:
    """A datastore on disk, or one behind a draft service (``grpc://host:port/name``): the same methods.

    ``residency``: how files on disk are kept in memory (``suffolk.datastore.open_datastore``); for a service, its server decides.

    Raises:
        NotFound, Corruption, Unsupported, ResourceExhausted: see ``suffolk.datastore.open_datastore``.
        InvalidArgument, Unavailable: see ``suffolk.serving.draft_service.client.connect``.
    """
    if isinstance(path_or_url, str) and is_url(path_or_url):
        from suffolk.serving.draft_service.client import connect  # gRPC is loaded only by those who use it

        if residency != "mmap":
            raise InvalidArgument(f"residency is {residency!r} for {path_or_url}; give it to 'suffolk serve' there")
        return connect(path_or_url)
    return open_datastore(path_or_url, residency)
