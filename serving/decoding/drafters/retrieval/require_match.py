"""Checks that a datastore can draft for a model."""

from __future__ import annotations

from suffolk.datastore.async_retriever import AsyncRetriever
from suffolk.datastore.errors import Unsupported
from suffolk.datastore.retriever import Retriever
from suffolk.serving.decoding.drafters.retrieval.limits import Limits


def require_match(
    retriever: Retriever,
    store_name: str,
    limits: Limits,
    model_name: str,
    fingerprint: str | None,
    vocab_size: int | None = None,
) -> None:
    """Raise if a datastore cannot draft for a model.

    Args:
        fingerprint: that of the model's tokenizer; None: not compared.
        vocab_size: that of the model; None: not compared. A datastore's may be smaller, because models have room for more ids than
            their tokenizers use.

    Raises:
        InvalidArgument: ``limits`` are deeper than the datastore's sorted suffixes, or than a draft service drafts.
        Unsupported: the datastore was built with another tokenizer, or has ids that the model does not know.
    """
    if isinstance(retriever, AsyncRetriever):
        limits.require_served()
    facts = retriever.info()
    limits.require_within(int(facts["order_depth"]))
    built_with = facts.get("tokenizer")
    if built_with is not None and fingerprint is not None and built_with != fingerprint:
        raise Unsupported(
            f"datastore {store_name} was built with tokenizer {built_with[:12]}, model {model_name} has {fingerprint[:12]}; build "
            f"one for this model: suffolk build --tokenizer {model_name} --output STORE corpus...",
        )
    built_for = int(facts["vocab_size"])
    if vocab_size is not None and built_for > vocab_size:
        raise Unsupported(
            f"datastore {store_name} was built for {built_for} token ids, model {model_name} has {vocab_size}; build one for this "
            f"model: suffolk build --tokenizer {model_name} --output STORE corpus..., or with its --vocab-size from token ids",
        )
