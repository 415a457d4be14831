"""Drafters of several sources: all datastores, or all sources in one tree."""

from __future__ import annotations

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.drafters.calibration.calibration import Calibration
from suffolk.serving.drafters.drafter_entry import LoadContext, Options
from suffolk.serving.drafters.hybrid.drafter import HybridDrafter
from suffolk.serving.drafters.retrieval.datastore import DatastoreDrafter
from suffolk.serving.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.drafters.retrieval.retrieval_source import RetrievalSource


def load_datastores(context: LoadContext, options: Options) -> RetrievalSource | HybridDrafter:
    """The drafter of the context's datastores, of which all are asked. Raises InvalidArgument if there is none."""
    calibration = context.calibration or Calibration()
    sources = _datastores(context, "datastore", calibration)
    return sources[0] if len(sources) == 1 else HybridDrafter(sources, calibration=calibration)


def load_hybrid(context: LoadContext, options: Options) -> HybridDrafter:
    """One tree of the request's own text, the datastores and the models. Raises InvalidArgument without the last two."""
    calibration = context.calibration or Calibration()
    sources = [] if context.models and not context.retrievers else _datastores(context, "hybrid", calibration)
    texts = [PromptLookupDrafter(context.vocab_size, context.limits, calibration), *sources]
    return HybridDrafter(texts, context.models, calibration, context.vocab_size)


def _datastores(context: LoadContext, name: str, calibration: Calibration) -> list[RetrievalSource]:
    if not context.retrievers:
        raise InvalidArgument(
            f"drafter {name} needs a datastore; open one (on the command line: --datastore PATH or grpc://HOST:PORT/NAME)"
        )
    for store in context.retrievers:
        if not hasattr(store, "draft_batch"):
            raise InvalidArgument(f"drafter {name}: {store!r} is no datastore; open it first, with suffolk.open")
    return [
        DatastoreDrafter(store, context.vocab_size, context.limits, calibration, context.prefetch)
        for store in context.retrievers
    ]
