"""An occurrence of a pattern in a datastore."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffolk.datastore.documents import Metadata


@dataclass(frozen=True, slots=True)
class Occurrence:
    """An occurrence of a pattern.

    Attributes:
        segment: name of the segment.
        document: index of the document in the segment.
        offset: token offset of the pattern in the document.
        source, metadata: origin of the document; see ``suffolk.datastore.documents.Origin``.
        tokens: uint32[m], the pattern and the tokens after it, up to the document's end.
    """

    segment: str
    document: int
    offset: int
    source: str | None
    metadata: Metadata
    tokens: npt.NDArray[np.uint32]
