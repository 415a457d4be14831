"""The rights of a worker's callers, apart from their roles."""

from __future__ import annotations

from dataclasses import dataclass, replace

from suffolk.datastore.errors import Field, InvalidArgument, PermissionDenied
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings


@dataclass(frozen=True, slots=True)
class RemotePolicy:
    """What callers of a worker may ask for. Immutable.

    Under verification ``typical`` a caller that chooses tiny thresholds, or flattens the distribution by a high temperature,
    gets the drafted tokens themselves: text of the worker's datastores. So it needs a floor under the model's own distribution.

    Attributes:
        typical_floor: least probability of a token that ``typical`` may accept, under the model's own distribution; 0 refuses
            ``typical``. From 0.5 on only the model's likeliest token passes, so that datastores reveal nothing.
        share_learning: whether drafters learn from the requests of all tenants together. Response times may then reveal
            parts of one tenant's texts to another.
        traces: whether callers that may see sources may also see draft trees and passages of datastores.
    """

    typical_floor: float = 0.0
    share_learning: bool = False
    traces: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.typical_floor <= 1:
            raise InvalidArgument(
                Field("typical_floor"), f" is {self.typical_floor}; it must be between 0 (refuse typical) and 1"
            )

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
