"""The options that a caller sets for the drafts of one request. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from suffolk.datastore.checks import listed, text
from suffolk.datastore.context_query import Tokens
from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.serving.decoding.engine.loop.prompt import token_ids, whole_text

MAX_PREDICTION = 1 << 18
"""The most characters or token ids of a predicted text."""
MAX_GROUP = 256
"""The most characters of a group's name (``DraftOptions.group``)."""
PREDICTION_SOURCE_ID = 8
"""The bit of ``DraftTree.sources`` that marks nodes drafted from a predicted text."""


@dataclass(frozen=True)
class DraftOptions:
    """Options of one request's drafts. With verification ``match``, they change only the speed, never the text.

    Attributes:
        prediction: the expected answer, or most of it, as a text or token ids. It is one more source of drafts. Drafters without
            retrieval ignore it.
        datastores: names of the datastores to search; None for all.
        tenant: owner of the request; empty if all requests have one owner. Tenants do not learn from each other: each has its own
            calibration of retrieved drafts, and token recycling does not learn from requests with a tenant. Answers to one prompt
            are drafted from each other only if they have the same tenant.
        remember: whether the text may be used for other requests, and kept after the request ends. If False, the text is not
            recorded, and drafters do not learn its tokens.
        group: the group whose documents a live datastore searches first, such as a user, a repository or the prompt's hash; None
            for no group. A worker that appends answers to a live datastore adds this request's answer to the group.
        trace: whether each step carries a ``StepTrace``.

    Raises:
        InvalidArgument: a value has another type, ``prediction`` is longer than MAX_PREDICTION or has a lone surrogate, or
            ``group`` is empty or longer than MAX_GROUP.
    """

    prediction: str | Tokens | None = None
    datastores: tuple[str, ...] | None = None
    remember: bool = True
    tenant: str = ""
    group: str | None = None
    trace: bool = False

    def __post_init__(self) -> None:
        if self.prediction is not None:
            object.__setattr__(self, "prediction", _checked_prediction(self.prediction))
        if self.datastores is not None:
            names = listed("datastores", self.datastores, "names")
            object.__setattr__(self, "datastores", tuple(text("datastores: a name", name) for name in names))
        for name in ("remember", "trace"):
            if not isinstance(value := getattr(self, name), bool):
                raise InvalidArgument(Field(name), f" is {value!r}; it must be true or false")
        if self.group is not None and not 0 < len(text("group", self.group)) <= MAX_GROUP:
            raise InvalidArgument(
                Field("group"), f" has {len(self.group)} characters; it must have 1 to {MAX_GROUP}: hash a long key"
            )

    def searches(self, datastore: str) -> bool:
        """Whether the request searches the datastore of that name."""
        return self.datastores is None or datastore in self.datastores

    def require_known(self, datastores: Sequence[str]) -> None:
        """Raise InvalidArgument if a name is not one of ``datastores``."""
        for name in self.datastores or ():
            if name not in datastores:
                known = ", ".join(datastores) or "none"
                raise InvalidArgument(Field("datastore"), f" {name!r} is not loaded; loaded: {known}")


def _checked_prediction(prediction: str | Tokens) -> str | tuple[int, ...]:
    if isinstance(prediction, str):
        _require_length(len(prediction), "characters")
        return whole_text("the prediction", prediction)
    ids = token_ids("the prediction", prediction, "give a text or a flat list of token ids")
    _require_length(len(ids), "token ids")
    return tuple(ids.tolist())


def _require_length(length: int, unit: str) -> None:
    if length > MAX_PREDICTION:
        raise InvalidArgument(
            Field("the prediction"), f" has {length} {unit}; the limit is {MAX_PREDICTION}; shorten it"
        )


DEFAULT_OPTIONS = DraftOptions()
