"""A request for one text, from any transport. Loads no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffolk.serving.engine.loop.draft_options import DEFAULT_OPTIONS, DraftOptions
from suffolk.serving.engine.sampling.settings import SamplingSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateCall:
    """A request for one text. Immutable.

    Attributes:
        prompt: token ids.
        settings: how tokens are sampled and where the text ends.
        drafter: empty for the worker's default, "none" for plain decoding.
        max_nodes: largest draft tree; None for the worker's.
        options: options of its drafts.
        kind: form of the prompt as it came: text, chat or token_ids. Recordings are grouped by it.
    """

    prompt: Sequence[int] | npt.NDArray[np.int32]
    settings: SamplingSettings
    drafter: str = ""
    max_nodes: int | None = None
    options: DraftOptions = DEFAULT_OPTIONS
    kind: str = "token_ids"
