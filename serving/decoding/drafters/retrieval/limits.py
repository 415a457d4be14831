"""Bounds of match lengths and draft depths in retrieval, and a check that a datastore can draft for a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from suffolk.datastore.context_query import DEFAULT_MAX_DEPTH, DEFAULT_MAX_MATCH, DEFAULT_MIN_MATCH
from suffolk.datastore.errors import Field, InvalidArgument, Unsupported
from suffolk.datastore.limits import MAX_DEPTH
from suffolk.datastore.retriever import AsyncRetriever, Retriever
from suffolk.datastore.settings import Within, check_fields

MAX_TOKENS = 4096
"""Longer matches and deeper drafts gain nothing."""
Length = Annotated[int, Within(1, MAX_TOKENS)]


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of retrieval, in tokens, each 1..4096.

    Attributes:
        max_match: the longest ending of the text to look up.
        min_match: the shortest match that gives a draft.
        max_depth: the depth of drafts.

    Raises:
        InvalidArgument: a value is not a whole number or out of its range, or ``min_match`` is above ``max_match``.
    """

    max_match: Length = DEFAULT_MAX_MATCH
    min_match: Length = DEFAULT_MIN_MATCH
    max_depth: Length = DEFAULT_MAX_DEPTH

    def __post_init__(self) -> None:
        check_fields(self)
        if self.min_match > self.max_match:
            raise InvalidArgument(
                Field("min_match"),
                f" is {self.min_match}; it must not be above ",
                Field("max_match"),
                f", {self.max_match}",
            )

    @property
    def copy_depth(self) -> int:
        """Depth of drafts from the request's own text. It is larger because copies tend to be long."""
        return min(2 * self.max_depth, MAX_TOKENS)

    def require_served(self) -> None:
        """Raise InvalidArgument if ``max_depth`` is deeper than a draft service drafts."""
        if self.max_depth > MAX_DEPTH:
            raise InvalidArgument(
                Field("max_depth"),
                f" is {self.max_depth}; drafts of a draft service are at most {MAX_DEPTH} tokens deep; lower it (on the "
                "command line: --set max_depth=N) or open the datastore's own folder",
            )

    def require_within(self, order_depth: int) -> None:
        """Raise InvalidArgument if a datastore with suffixes sorted to ``order_depth`` tokens is too shallow."""
        if self.max_match + self.max_depth > order_depth:
            raise InvalidArgument(
                Field("max_match"),
                f" {self.max_match} + ",
                Field("max_depth"),
                f" {self.max_depth} is above the datastore's order depth {order_depth}; "
                "lower one of them or build the datastore with a larger --order-depth",
            )


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
        fingerprint: the model's tokenizer; None: not compared.
        vocab_size: the model's; None: not compared. A datastore's vocabulary may be smaller, because models have room for more
            ids than their tokenizers use.

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
