"""Reads and writes ``Levels`` as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from suffolk.datastore.errors import Corruption, InvalidArgument, NotFound
from suffolk.serving.drafters.hierarchy.level import Level, RunDistribution
from suffolk.serving.drafters.hierarchy.levels import Levels
from suffolk.serving.engine.checks import listed

_MOST_BYTES = 1 << 26


def read_rates(path: Path) -> Levels:
    """Read the levels in the file ``path``.

    Raises:
        NotFound: there is no such file, or it cannot be read.
        Corruption: it is no JSON, or larger than 64 MiB.
        InvalidArgument: it is not as ``from_json`` needs it.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise NotFound(f"rates {path}: cannot be read ({error.strerror}); name a file of rates") from error
    if len(content) > _MOST_BYTES:
        raise Corruption(f"rates {path}: larger than {_MOST_BYTES} bytes; name a file of rates")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Corruption(
            f"rates {path}: no JSON ({error}); see the example of 'suffolk hierarchy plan --help'"
        ) from error
    try:
        return from_json(document)
    except InvalidArgument as error:
        raise InvalidArgument(f"rates {path}: {error}") from error


def from_json(values: object) -> Levels:
    """The inverse of ``to_json``; ``runs``, ``retrieval`` and ``found`` may be left out.

    Raises:
        InvalidArgument: a key is missing or unknown, or a value is not as in ``Levels``, ``Level`` and ``RunDistribution``.
    """
    document = _object("the document", values, Levels, ("levels", "acceptance"))
    levels = [
        Level(**_object(f"level {place}", each, Level, ("name", "seconds")))
        for place, each in enumerate(listed("levels", document["levels"], "levels"))
    ]
    runs = [
        RunDistribution(
            **_object(f"distribution {place} of runs", each, RunDistribution, ("drafter", "verifier", "probabilities"))
        )
        for place, each in enumerate(listed("runs", document.get("runs", ()), "distributions"))
    ]
    return Levels(tuple(levels), document["acceptance"], tuple(runs))


def to_json(levels: Levels) -> dict[str, Any]:
    """The fields of ``Levels``, ``Level`` and ``RunDistribution`` as JSON holds them."""
    return asdict(levels)


def _object(what: str, value: object, kind: type, required: tuple[str, ...]) -> Mapping[str, Any]:
    """Check that ``value`` is a mapping with the fields of the dataclass ``kind``. Raises InvalidArgument otherwise."""
    known = [field.name for field in fields(kind)]
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"{what} is of type {type(value).__name__}; it must be an object with {', '.join(known)}")
    if unknown := [str(name) for name in value if name not in known]:
        raise InvalidArgument(f"{what} has the key {unknown[0]!r}; it must have {', '.join(known)}, no more")
    if missing := [name for name in required if name not in value]:
        raise InvalidArgument(f"{what} has no {missing[0]}; it needs {', '.join(required)}")
    return value
