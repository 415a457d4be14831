"""Suffolk makes a language model decode faster by drafting from text on file. The text stays the same.

Open a datastore, on disk or behind a draft service, and search it:

    import suffolk

    store = suffolk.open("store/")                      # or "grpc://host:port/name"
    store.lookup("import numpy as np\\nfrom")            # Match(length=6, count=714)
    tree = store.draft("import numpy as np\\nfrom", max_nodes=4)
    store.decode(tree.tokens)                           # the texts of the tree's nodes

``lookup`` and ``draft`` take a text or token ids. ``encode`` and ``decode`` use the tokenizer that the store was built with.

Append to a datastore while it is searched:

    with suffolk.create("notes/", tokenizer="model/") as notes:   # later: suffolk.open("notes/", append=True)
        notes.append("def add(a, b):\n    return a + b", id="add.py", group="repository")
        notes.draft("def add(a,", group="repository")   # the group first, then everything

Appended documents survive the end of the process. ``flush`` publishes them as segment files for other processes.

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
from typing import TYPE_CHECKING, Any, Literal, overload

if TYPE_CHECKING:
    from pathlib import Path

    from suffolk.build_index.builder import build as build
    from suffolk.build_index.options import BuildOptions as BuildOptions
    from suffolk.datastore.datastore import Datastore as Datastore
    from suffolk.datastore.documents import Document as Document
    from suffolk.datastore.documents import Occurrence as Occurrence
    from suffolk.datastore.draft_tree import DraftTree as DraftTree
    from suffolk.datastore.errors import Corruption as Corruption
    from suffolk.datastore.errors import DeadlineExceeded as DeadlineExceeded
    from suffolk.datastore.errors import Internal as Internal
    from suffolk.datastore.errors import InvalidArgument as InvalidArgument
    from suffolk.datastore.errors import NotFound as NotFound
    from suffolk.datastore.errors import PermissionDenied as PermissionDenied
    from suffolk.datastore.errors import ResourceExhausted as ResourceExhausted
    from suffolk.datastore.errors import SuffolkError as SuffolkError
    from suffolk.datastore.errors import Unavailable as Unavailable
    from suffolk.datastore.errors import Unsupported as Unsupported
    from suffolk.datastore.request_texts import ContextIndex as ContextIndex
    from suffolk.datastore.retriever import Match as Match
    from suffolk.datastore.retriever import Retriever as Retriever
    from suffolk.datastore.version import __version__ as __version__
    from suffolk.datastore.watched_datastore import WatchedDatastore as WatchedDatastore
    from suffolk.serving.clients.fanout.appendable import AppendableFanout
    from suffolk.serving.clients.fanout.datastore import FanoutDatastore as FanoutDatastore
    from suffolk.serving.clients.remote_datastore import RemoteDatastore as RemoteDatastore
    from suffolk.serving.decoding.drafters.drafter_config import DrafterConfig as DrafterConfig
    from suffolk.serving.decoding.drafters.drafter_entry import DrafterEntry as DrafterEntry
    from suffolk.serving.decoding.drafters.drafter_entry import DrafterOption as DrafterOption
    from suffolk.serving.decoding.drafters.drafter_entry import LoadContext as LoadContext
    from suffolk.serving.decoding.drafters.load import load_drafters as load_drafters
    from suffolk.serving.decoding.drafters.load import make_drafter as make_drafter
    from suffolk.serving.decoding.drafters.registry import source_bits as source_bits
    from suffolk.serving.decoding.drafters.registry import source_name as source_name
    from suffolk.serving.decoding.drafters.retrieval.limits import Limits as Limits
    from suffolk.serving.decoding.engine.costs.cost_model import CostModel as CostModel
    from suffolk.serving.decoding.engine.costs.cost_store import find_costs as find_costs
    from suffolk.serving.decoding.engine.loop.draft_options import DraftOptions as DraftOptions
    from suffolk.serving.decoding.engine.loop.drafter import Drafter as Drafter
    from suffolk.serving.decoding.engine.loop.drafter import DraftRequest as DraftRequest
    from suffolk.serving.decoding.engine.loop.drafter import FeatureDrafter as FeatureDrafter
    from suffolk.serving.decoding.engine.loop.drafter import SampledChain as SampledChain
    from suffolk.serving.decoding.engine.loop.engine import Engine as Engine
    from suffolk.serving.decoding.engine.loop.generation import Generation as Generation
    from suffolk.serving.decoding.engine.loop.step import Step as Step
    from suffolk.serving.decoding.engine.model.target import Target as Target
    from suffolk.serving.decoding.engine.sampling.grammar import Grammar as Grammar
    from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings as SamplingSettings
    from suffolk.serving.integrations.transformers.generate import generate as generate
    from suffolk.serving.store.live_store.settings import LiveSettings as LiveSettings
    from suffolk.serving.store.live_store.store import LiveStore as LiveStore
    from suffolk.serving.store.storage.pull import pull as pull
    from suffolk.serving.store.storage.push import push as push
    from suffolk.serving.worker.client import connect_worker as connect_worker

_MODULES = {
    "suffolk.build_index.builder": "build",
    "suffolk.build_index.options": "BuildOptions",
    "suffolk.datastore.request_texts": "ContextIndex",
    "suffolk.datastore.datastore": "Datastore",
    "suffolk.datastore.documents": "Document Occurrence",
    "suffolk.datastore.draft_tree": "DraftTree",
    "suffolk.datastore.errors": "Corruption DeadlineExceeded Internal InvalidArgument NotFound PermissionDenied "
    "ResourceExhausted SuffolkError Unavailable Unsupported",
    "suffolk.datastore.retriever": "Match Retriever",
    "suffolk.datastore.version": "__version__",
    "suffolk.datastore.watched_datastore": "WatchedDatastore",
    "suffolk.serving.clients.remote_datastore": "RemoteDatastore",
    "suffolk.serving.decoding.drafters.drafter_config": "DrafterConfig",
    "suffolk.serving.decoding.drafters.drafter_entry": "DrafterEntry DrafterOption LoadContext",
    "suffolk.serving.decoding.drafters.load": "load_drafters make_drafter",
    "suffolk.serving.decoding.drafters.registry": "source_bits source_name",
    "suffolk.serving.decoding.drafters.retrieval.limits": "Limits",
    "suffolk.serving.decoding.engine.costs.cost_model": "CostModel",
    "suffolk.serving.decoding.engine.costs.cost_store": "find_costs",
    "suffolk.serving.decoding.engine.loop.draft_options": "DraftOptions",
    "suffolk.serving.decoding.engine.loop.drafter": "DraftRequest Drafter FeatureDrafter SampledChain",
    "suffolk.serving.decoding.engine.loop.engine": "Engine",
    "suffolk.serving.decoding.engine.loop.generation": "Generation",
    "suffolk.serving.decoding.engine.loop.step": "Step",
    "suffolk.serving.decoding.engine.model.target": "Target",
    "suffolk.serving.decoding.engine.sampling.grammar": "Grammar",
    "suffolk.serving.decoding.engine.sampling.settings": "SamplingSettings",
    "suffolk.serving.clients.fanout.datastore": "FanoutDatastore",
    "suffolk.serving.integrations.transformers.generate": "generate",
    "suffolk.serving.store.live_store.settings": "LiveSettings",
    "suffolk.serving.store.live_store.store": "LiveStore",
    "suffolk.serving.store.storage.pull": "pull",
    "suffolk.serving.store.storage.push": "push",
    "suffolk.serving.worker.client": "connect_worker",
}
"""Map from module to its public names. A module is imported when one of its names is first used."""
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}
__all__ = sorted(["create", "open", *_MODULE_OF])


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_MODULE_OF[name]), name)
    except ModuleNotFoundError as error:
        from suffolk.datastore.errors import missing_extra

        raise missing_extra(error) or error from error


def __dir__() -> list[str]:
    return __all__


@overload
def open(
    path_or_url: str | Path,
    residency: str | None = ...,
    deadline: float | None = ...,
    watch: bool = ...,
    *,
    cache: str | Path | None = ...,
) -> Datastore | RemoteDatastore | FanoutDatastore | WatchedDatastore: ...
@overload
def open(
    path_or_url: str | Path,
    residency: str | None = ...,
    deadline: float | None = ...,
    watch: bool = ...,
    *,
    append: Literal[True] | LiveSettings,
) -> LiveStore | RemoteDatastore | AppendableFanout: ...


def open(
    path_or_url: str | Path,
    residency: str | None = None,
    deadline: float | None = None,
    watch: bool = False,
    append: bool | LiveSettings = False,
    cache: str | Path | None = None,
) -> Datastore | RemoteDatastore | FanoutDatastore | AppendableFanout | WatchedDatastore | LiveStore:
    """Open a datastore on disk, or connect to one behind a draft service (``grpc://host:port/name``).

    A datastore in object storage (``s3://bucket/name``) is copied to the folder ``cache`` and opened there.

    All results have the methods of ``suffolk.Retriever``. Close them after use, or use them as context managers.

    Args:
        path_or_url: a folder, a URL (``suffolk.serving.net.url``), or the address of several servers
            (``suffolk.serving.clients.fanout.topology``).
        residency: how files on disk are kept in memory (``suffolk.datastore.datastore.open_datastore``); None for "mmap". Not
            allowed with a URL of a service, because the server decides. For appending, it is one of the settings.
        deadline: seconds for a call to a service; None: the URL's ``?deadline_ms=``, else 0.02, about one decoding step.
        watch: whether to follow newly published generations: on disk within a second, in storage within ten. A service always
            follows.
        cache: folder of the copy, for a URL of storage. Only missing files are copied.
        append: whether to open the datastore for appending (``suffolk.LiveStore``), or the settings for appending, residency
            included. Only one process at a time can open a folder for appending. A service has the same methods for callers with
            the right to append. Of several servers, the leading copy gets the appended documents.

    Raises:
        NotFound, Corruption, Unsupported, PermissionDenied, ResourceExhausted: see
            ``suffolk.datastore.datastore.open_datastore``. For a URL of storage also Unavailable.
        InvalidArgument, Unavailable, DeadlineExceeded: see ``suffolk.serving.clients.remote_datastore.connect``.
        InvalidArgument: an argument does not fit the kind of datastore, for example ``append`` to a URL of storage.
        Unavailable: another process has the folder open for appending.
    """
    from suffolk.datastore.errors import Field, InvalidArgument
    from suffolk.datastore.file_systems import is_storage_url
    from suffolk.serving.net.url import is_url, names_several
    from suffolk.serving.open_store import open_store

    if not append:
        return open_store(path_or_url, residency, deadline, watch, cache)
    address = str(path_or_url)
    if is_storage_url(address):
        raise InvalidArgument(f"{address}: storage takes no appends; append to a datastore's folder, and push that")
    is_service = is_url(address) or names_several(address)
    if is_service and append is not True:
        raise InvalidArgument(Field("append"), " holds settings, and the service has its own; give append=True")
    unused: dict[str, object] = {"residency": residency, "cache": cache}
    if not is_service:
        unused |= {"watch": watch or None, "deadline": deadline}  # a service always follows
    for name, value in unused.items():
        if value is not None:
            other = ", or give append=LiveSettings(residency=...)" if name == "residency" and not is_service else ""
            raise InvalidArgument(Field(name), f" has no effect with append; leave it out{other}")
    if names_several(address):
        from suffolk.serving.clients.fanout.appendable import AppendableFanout

        return AppendableFanout(address, deadline)
    if is_service:
        return open_store(address, deadline=deadline)
    from suffolk.serving.store.live_store.settings import LiveSettings
    from suffolk.serving.store.live_store.store import open_live_store

    settings = LiveSettings() if append is True else append
    if not isinstance(settings, LiveSettings):
        raise InvalidArgument(Field("append"), f" is {append!r}; give True, or LiveSettings(...)")
    return open_live_store(path_or_url, settings)


def create(
    path: str | Path,
    tokenizer: str | Path | None = None,
    vocab_size: int | None = None,
    order_depth: int = 64,
    settings: LiveSettings | None = None,
) -> LiveStore:
    """Make an empty datastore in the new folder ``path``, and open it for appending.

    Args:
        tokenizer: a Hugging Face folder, a tokenizer.json or a hub name; None: only token ids can be appended.
        vocab_size: number of ids; needed without a tokenizer.
        order_depth: number of tokens by which suffixes are sorted. ``max_match + max_depth`` of a query must not exceed it.
        settings: durability and bounds; None: the defaults.

    Raises:
        InvalidArgument: the folder exists, or a value is out of its bounds.
        NotFound, Corruption: the tokenizer cannot be read.
    """
    from suffolk.serving.store.live_store.store import DEFAULT_SETTINGS, create_live_store

    return create_live_store(path, tokenizer, vocab_size, order_depth, settings or DEFAULT_SETTINGS)
