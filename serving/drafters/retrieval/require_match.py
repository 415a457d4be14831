"""Checks that a datastore can draft for a model."""

from __future__ import annotations

from suffolk.datastore.errors import Unsupported
from suffolk.datastore.retriever import Retriever
from suffolk.serving.drafters.retrieval.inflight_call import LaterRetriever
from suffolk.serving.drafters.retrieval.limits import Limits


def require_match(retriever: Retriever, store_name: str, limits: Limits, model_name: str, fingerprint: str) -> None:
    """Raise if a datastore cannot draft for a model. ``fingerprint``: that of the model's tokenizer.

    Raises:
        InvalidArgument: ``limits`` are deeper than the datastore's sorted suffixes, or than a draft service drafts.
        Unsupported: the datastore was built with another tokenizer.
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
