"""A request for one text, from any transport. Does not import torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffolk.serving.decoding.engine.loop.draft_options import DEFAULT_OPTIONS, DraftOptions
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateCall:
    """A request for one text. Immutable.

    Attributes:
        prompt: token ids.
        settings: sampling settings and end conditions.
        drafter: empty for the worker's default, "none" for plain decoding.
        max_nodes: most nodes of a draft tree; None for the worker's default.
        options: draft options.
        kind: original form of the prompt: text, chat or token_ids. Recordings are grouped by ``kind``.
    """

    prompt: Sequence[int] | npt.NDArray[np.int32]
    settings: SamplingSettings
    drafter: str = ""
    max_nodes: int | None = None
    options: DraftOptions = DEFAULT_OPTIONS
    kind: str = "token_ids"
