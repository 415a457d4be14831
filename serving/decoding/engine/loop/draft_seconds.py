"""Splits the time of a drafter into prefill, models and retrieval."""

from __future__ import annotations

from dataclasses import dataclass

from suffolk.serving.decoding.engine.loop.drafter import Drafter


@dataclass(frozen=True, slots=True)
class DraftSeconds:
    """The time that a drafter spent since its start, from its ``stats``.

    Attributes:
        prefill: seconds for prefill.
        models: seconds of the models that the drafter can leave out, without prefill.
    """

    prefill: float = 0.0
    models: float = 0.0

    @staticmethod
    def so_far(drafter: Drafter) -> DraftSeconds:
        """The seconds until now. Raises as the drafter's ``stats``."""
        stats = drafter.stats()
        return DraftSeconds(float(stats.get("prefill_seconds", 0.0)), float(stats.get("model_seconds", 0.0)))

    def split(self, before: DraftSeconds, seconds: float) -> tuple[float, float, float]:
        """The ``seconds`` since ``before``, split into those of retrieval, models and prefill."""
        prefill = min(seconds, max(0.0, self.prefill - before.prefill))
        models = min(seconds - prefill, max(0.0, self.models - before.models))
        return seconds - prefill - models, models, prefill
