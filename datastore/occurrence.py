"""A place where a pattern stands."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffolk.datastore.documents import Metadata


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One place where a pattern stands.

    Attributes:
        segment: name of the segment.
        document: index of the document in the segment.
        offset: token offset of the pattern in the document.
        source: where the document came from; None if that was not recorded.
        metadata: field -> value of what was kept of its record.
        tokens: uint32[m], the pattern and what follows it, to the document's end at most.
    """

    segment: str
    document: int
    offset: int
    source: str | None
    metadata: Metadata
    tokens: npt.NDArray[np.uint32]
