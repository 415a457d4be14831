"""Loads the drafters ``datastore`` and ``hybrid``."""

from __future__ import annotations

from dataclasses import replace

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.drafters.calibration.calibration import Calibration
from suffolk.serving.decoding.drafters.drafter_entry import LoadContext, Options
from suffolk.serving.decoding.drafters.hybrid.drafter import HybridDrafter
from suffolk.serving.decoding.drafters.retrieval.datastore import DatastoreDrafter
from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.drafters.retrieval.retrieval_source import RetrievalSource
from suffolk.serving.decoding.drafters.retrieval.with_request_texts import WithRequestTexts, request_texts


def load_datastores(context: LoadContext, options: Options) -> RetrievalSource | HybridDrafter:
    """A drafter that searches all datastores of ``context``. Raises InvalidArgument if there are none."""
    calibration = context.calibration or Calibration()
    sources = _datastores(context, "datastore", calibration)
    texts = request_texts(replace(context, calibration=calibration))
    if len(sources) == 1:
        return WithRequestTexts(sources[0], texts)
    return HybridDrafter([*sources, *texts], calibration=calibration)


def load_hybrid(context: LoadContext, options: Options) -> HybridDrafter:
    """A drafter that merges prompt lookup, the datastores and the models of ``context``.

    Raises InvalidArgument if there are neither datastores nor models.
    """
    calibration = context.calibration or Calibration()
    sources = [] if context.models and not context.retrievers else _datastores(context, "hybrid", calibration)
    texts: list[RetrievalSource] = [
        PromptLookupDrafter(context.vocab_size, context.limits, calibration),
        *request_texts(replace(context, calibration=calibration)),
        *sources,
    ]
    return HybridDrafter(texts, context.models, calibration, context.vocab_size)


def _datastores(context: LoadContext, name: str, calibration: Calibration) -> list[RetrievalSource]:
    if not context.retrievers:
        raise InvalidArgument(
            f"drafter {name} needs a datastore; open one (on the command line: --datastore PATH or grpc://HOST:PORT/NAME)",
        )
    for store in context.retrievers:
        if not hasattr(store, "draft_batch"):
            raise InvalidArgument(f"drafter {name}: {store!r} is not a datastore; open it first, with suffolk.open")
    return [
        DatastoreDrafter(store, context.vocab_size, context.limits, calibration, context.prefetch)
        for store in context.retrievers
    ]
