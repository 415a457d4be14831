"""A call of a worker, from any transport: its request, the rights of its caller, and the steps that are sent together.

Does not import torch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import numpy.typing as npt

from suffolk.datastore.errors import Field, PermissionDenied
from suffolk.datastore.settings import Checked, Within
from suffolk.serving.decoding.engine.loop.draft_options import DEFAULT_OPTIONS, DraftOptions
from suffolk.serving.decoding.engine.loop.step import Step
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateCall:
    """A request for one text. Immutable.

    Attributes:
        prompt: token ids.
        settings: sampling settings and end conditions.
        drafter: empty for the worker's default, "none" for plain decoding.
        max_nodes: the most nodes of a draft tree; None for the worker's default.
        options: draft options.
        kind: original form of the prompt: text, chat or token_ids. Recordings are grouped by ``kind``.
    """

    prompt: Sequence[int] | npt.NDArray[np.int32]
    settings: SamplingSettings
    drafter: str = ""
    max_nodes: int | None = None
    options: DraftOptions = DEFAULT_OPTIONS
    kind: str = "token_ids"


@dataclass(frozen=True, slots=True)
class RemotePolicy(Checked):
    """What callers of a worker may ask for. Immutable.

    With verification ``typical``, all drafted tokens pass if thresholds are tiny or the temperature is high. A caller could then
    read text of the worker's datastores. So ``typical`` needs a least probability under the model's own distribution.

    Attributes:
        typical_floor: least probability of a token that ``typical`` may accept, under the model's own distribution; 0 refuses
            ``typical``. From 0.5 on, only the model's likeliest token passes, and datastores reveal nothing.
        share_learning: whether drafters learn from the requests of all tenants together. If so, response times may reveal parts
            of one tenant's texts to another tenant.
        traces: whether callers that may see sources may also see draft trees and passages of datastores.
    """

    typical_floor: Annotated[float, Within(0, 1, "between 0 (refuse typical) and 1")] = 0.0
    share_learning: bool = False
    traces: bool = False

    def apply(self, settings: SamplingSettings) -> SamplingSettings:
        """The settings with which to decode. Raises PermissionDenied for verification ``typical`` without a floor."""
        if settings.verification != "typical":
            return settings
        if not self.typical_floor:
            raise PermissionDenied(
                Field("verification"),
                " is 'typical', which this worker refuses: it may reveal text of its datastores; use match or "
                "rejection, or ask the operator to set ",
                Field("typical_floor"),
            )
        return replace(settings, typical_floor=max(settings.typical_floor, self.typical_floor))


class StepJoiner:
    """Joins the steps of one stream that arrive within one interval. Not thread-safe.

    The first step, always of one token, and the last step are sent immediately. Joining hides the number of accepted tokens per
    step. Otherwise the packet sizes and times of an encrypted stream reveal these numbers, and the numbers reveal the topic of
    the text (arXiv 2411.01076).
    """

    def __init__(self, interval: float, clock: Callable[[], float] = time.monotonic) -> None:
        """``interval``: least seconds between two packets; 0 sends every step. ``clock``: seconds."""
        self._interval = interval
        self._clock = clock
        self._due = 0.0
        self._held: list[Step] = []

    def add(self, step: Step) -> Step | None:
        """Join ``step`` to the steps held back, and return one step. Returns None if ``step`` is held back too."""
        self._held.append(step)
        now = self._clock()
        if not step.finish and now < self._due:
            return None
        held, self._held, self._due = self._held, [], now + self._interval
        return held[0] if len(held) == 1 else _joined(held)


def _joined(steps: list[Step]) -> Step:
    return Step(
        tokens=tuple(token for step in steps for token in step.tokens),
        sources=tuple(source for step in steps for source in step.sources),
        pieces=tuple(piece for step in steps for piece in step.pieces),
        finish=steps[-1].finish,
        log_probabilities=tuple(each for step in steps for each in step.log_probabilities),
        traces=tuple(each for step in steps for each in step.traces),
    )
