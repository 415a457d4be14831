"""The state of one request in a hierarchy: its cache slot, its samplers, and the draft of this step."""

from __future__ import annotations

from suffolk.serving.drafters.hierarchy.draft_segment import EMPTY_SEGMENT, DraftSegment
from suffolk.serving.drafters.hierarchy.level_sampling import FreshUniforms, SamplerCache
from suffolk.serving.drafters.hierarchy.segment_calibrator import SegmentCalibrator
from suffolk.serving.engine.loop.drafter import DraftRequest
from suffolk.serving.engine.policy.round_policy import RoundPolicy


class StackState:
    """A request from its first draft on. Not thread-safe.

    Attributes:
        slot: its slot in the caches of all levels.
        request: as of the last ``begin``; ``room``: the most tokens that a draft may have.
        samplers, uniforms: of its levels, made when they are first used.
        rounds: rounds of the top level in this step.
        segment: what the top level has drafted for the target in this step.
        is_cut: whether a level's logits were NaN in this step, so that the draft is shorter.
    """

    request: DraftRequest

    def __init__(self, slot: int, levels: int) -> None:
        self.slot = slot
        self.samplers: SamplerCache | None = None
        self.uniforms: list[FreshUniforms | None] = [None] * levels
        self.room = self.rounds = 0
        self.segment = EMPTY_SEGMENT
        self.is_cut = False
        self._calibrator: SegmentCalibrator | None = None
        self._policy: RoundPolicy | None = None

    def begin(
        self, request: DraftRequest, room: int, calibrator: SegmentCalibrator, policy: RoundPolicy | None
    ) -> None:
        """Begin a step. ``policy`` decides whether a further round is worth its time; None: all rounds are made."""
        self.request, self.room, self.rounds, self.segment, self.is_cut = request, room, 0, EMPTY_SEGMENT, False
        self._calibrator, self._policy = calibrator, policy

    def goes_on(self, segment: DraftSegment) -> bool:
        """Whether the top level should draft more behind ``segment``."""
        if self._policy is None or self._calibrator is None:
            return True
        value = float(self._calibrator.scores(segment, self.request.settings)[-1])
        return self._policy.pays(value, self.request.budget.value_seconds)
