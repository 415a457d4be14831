"""Suffolk makes a language model decode faster by drafting from text on file. The text stays the same.

Open a datastore, on disk or behind a draft service, and search it:

    import suffolk

    store = suffolk.open("store/")                      # or "grpc://host:port/name"
    store.lookup("import numpy as np\\nfrom")            # Match(length=6, count=714)
    tree = store.draft("import numpy as np\\nfrom", max_nodes=4)
    store.decode(tree.tokens)                           # the texts of the tree's nodes

``lookup`` and ``draft`` take a text or token ids. ``encode`` and ``decode`` use the tokenizer that the store was built with.

Decode with a model, for many requests at once, from threads or from an event loop:

    import asyncio
    import suffolk

    target = suffolk.Target.load("model/")              # or a hub name
    drafter = suffolk.make_drafter("prompt-lookup", target.vocab_size)
    settings = suffolk.SamplingSettings(max_new_tokens=30, temperature=0.7, seed=1)

    with suffolk.Engine(target, {"prompt-lookup": drafter}) as engine:
        generation = engine.generate("one two three, one two", settings, "prompt-lookup")
        for step in generation:                         # generation.cancel() ends it early
            print(step.text, end="")

        async def generate() -> list[int]:
            plain = engine.generate("one two three, one two", settings)
            return [token async for step in plain for token in step.tokens]

        assert asyncio.run(generate()) == generation.tokens  # drafts do not change the text

A prompt is a text, token ids, or a list of messages such as ``{"role": "user", "content": "Hello"}``.
``suffolk.connect_worker("grpc://host:port")`` has the same ``generate`` for an engine that 'suffolk worker' runs.

The names of this module are the public interface. Modules below it may change without notice.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suffolk.datastore import (
    ContextIndex,
    Datastore,
    DraftTree,
    Match,
    Occurrence,
    Retriever,
    __version__,
    open_datastore,
)
from suffolk.datastore.errors import (
    Corruption,
    DeadlineExceeded,
    Internal,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    SuffolkError,
    Unavailable,
    Unsupported,
)
from suffolk.serving.transport.url import is_url

if TYPE_CHECKING:
    from suffolk.build_index.builder import build
    from suffolk.build_index.options import BuildOptions
    from suffolk.serving.draft_service.client import RemoteDatastore
    from suffolk.serving.drafters.drafter_config import DrafterConfig
    from suffolk.serving.drafters.drafter_entry import DrafterEntry, DrafterOption, LoadContext
    from suffolk.serving.drafters.load import load_drafters, make_drafter
    from suffolk.serving.drafters.registry import source_bits, source_name
    from suffolk.serving.drafters.retrieval.limits import Limits
    from suffolk.serving.engine.costs.cost_model import CostModel
    from suffolk.serving.engine.costs.cost_store import find_costs
    from suffolk.serving.engine.loop.drafter import Drafter, DraftRequest, FeatureDrafter, SampledChain
    from suffolk.serving.engine.loop.engine import Engine
    from suffolk.serving.engine.loop.generation import Generation
    from suffolk.serving.engine.loop.request import Step
    from suffolk.serving.engine.model.target import Target
    from suffolk.serving.engine.sampling.settings import SamplingSettings
    from suffolk.serving.worker.client import connect_worker

__all__ = [
    "BuildOptions",
    "ContextIndex",
    "Corruption",
    "CostModel",
    "Datastore",
    "DeadlineExceeded",
    "DraftRequest",
    "DraftTree",
    "Drafter",
    "DrafterConfig",
    "DrafterEntry",
    "DrafterOption",
    "Engine",
    "FeatureDrafter",
    "Generation",
    "Internal",
    "InvalidArgument",
    "Limits",
    "LoadContext",
    "Match",
    "NotFound",
    "Occurrence",
    "PermissionDenied",
    "RemoteDatastore",
    "ResourceExhausted",
    "Retriever",
    "SampledChain",
    "SamplingSettings",
    "Step",
    "SuffolkError",
    "Target",
    "Unavailable",
    "Unsupported",
    "__version__",
    "build",
    "connect_worker",
    "find_costs",
    "load_drafters",
    "make_drafter",
    "open",
    "source_bits",
    "source_name",
]

_LAZY = {
    "BuildOptions": "suffolk.build_index.options",
    "CostModel": "suffolk.serving.engine.costs.cost_model",
    "DraftRequest": "suffolk.serving.engine.loop.drafter",
    "Drafter": "suffolk.serving.engine.loop.drafter",
    "DrafterConfig": "suffolk.serving.drafters.drafter_config",
    "DrafterEntry": "suffolk.serving.drafters.drafter_entry",
    "DrafterOption": "suffolk.serving.drafters.drafter_entry",
    "Engine": "suffolk.serving.engine.loop.engine",
    "FeatureDrafter": "suffolk.serving.engine.loop.drafter",
    "Generation": "suffolk.serving.engine.loop.generation",
    "Limits": "suffolk.serving.drafters.retrieval.limits",
    "RemoteDatastore": "suffolk.serving.draft_service.client",
    "LoadContext": "suffolk.serving.drafters.drafter_entry",
    "SampledChain": "suffolk.serving.engine.loop.drafter",
    "SamplingSettings": "suffolk.serving.engine.sampling.settings",
    "Step": "suffolk.serving.engine.loop.request",
    "Target": "suffolk.serving.engine.model.target",
    "build": "suffolk.build_index.builder",
    "connect_worker": "suffolk.serving.worker.client",
    "find_costs": "suffolk.serving.engine.costs.cost_store",
    "load_drafters": "suffolk.serving.drafters.load",
    "make_drafter": "suffolk.serving.drafters.load",
    "source_bits": "suffolk.serving.drafters.registry",
    "source_name": "suffolk.serving.drafters.registry",
}
"""Name -> module of what imports torch, gRPC or multiprocessing: imported by its first use."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return __all__


def open(
    path_or_url: str | Path, residency: str = "mmap", deadline: float | None = None
) -> Datastore | RemoteDatastore:
    """Open a datastore on disk, or connect to one behind a draft service (``grpc://host:port/name``).

    Both have the methods of ``suffolk.Retriever``. Close them after use, or use them as context managers.

    Args:
        path_or_url: a folder, or a URL (``suffolk.serving.transport.url``).
        residency: how files on disk are kept in memory (``suffolk.datastore.open_datastore``). A server decides its own.
        deadline: seconds for a lookup or draft of a service; None: that of the URL (``?deadline_ms=``), else 0.02, which is
            about one decoding step.

    Raises:
        NotFound, Corruption, Unsupported, ResourceExhausted: see ``suffolk.datastore.open_datastore``.
        InvalidArgument, Unavailable: see ``suffolk.serving.draft_service.client.connect``.
    """
    if isinstance(path_or_url, str) and is_url(path_or_url):
        from suffolk.serving.draft_service.client import connect  # imports gRPC, which local stores do not need

        if residency != "mmap":
            raise InvalidArgument(f"residency is {residency!r} for {path_or_url}; give it to 'suffolk serve' there")
        return connect(path_or_url, deadline)
    if deadline is not None:
        raise InvalidArgument(f"deadline is {deadline!r} for {path_or_url}; only a service has one, leave it out")
    return open_datastore(path_or_url, residency)
