"""An occurrence of a pattern in a datastore."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from suffolk.datastore.documents import Metadata


@dataclass(frozen=True, slots=True)
class Occurrence:
    """An occurrence of a pattern.

    Attributes:
        segment: name of the segment; empty for a document in the memory of a live datastore.
        document: index of the document in the segment; in memory, its number.
        offset: token offset of the pattern in the document.
        source, metadata: origin of the document; see ``suffolk.datastore.documents.Origin``.
        tokens: uint32[m], the pattern and the tokens after it, up to the document's end.
        before: uint32[k], the tokens before the pattern, from the document's beginning on.
        datastore: name of the datastore that holds the document.
    """

    segment: str
    document: int
    offset: int
    source: str | None
    metadata: Metadata
    tokens: npt.NDArray[np.uint32]
    before: npt.NDArray[np.uint32] = field(default_factory=lambda: np.empty(0, np.uint32))
    datastore: str = ""
