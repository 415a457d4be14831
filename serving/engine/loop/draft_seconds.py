"""Splits the seconds of a drafter by their use."""

from __future__ import annotations

from dataclasses import dataclass

from suffolk.serving.engine.loop.drafter import Drafter


@dataclass(frozen=True, slots=True)
class DraftSeconds:
    """A drafter's seconds since its start, from its ``stats``: for prefill, and for models that it can draft without."""

    prefill: float = 0.0
    models: float = 0.0

    @staticmethod
    def so_far(drafter: Drafter) -> DraftSeconds:
        """The seconds until now. Raises as the drafter's ``stats``."""
        stats = drafter.stats()
        return DraftSeconds(float(stats.get("prefill_seconds", 0.0)), float(stats.get("model_seconds", 0.0)))

    def split(self, before: DraftSeconds, seconds: float) -> tuple[float, float, float]:
        """The ``seconds`` since ``before``, split into (retrieval, models, prefill)."""
        prefill = min(seconds, max(0.0, self.prefill - before.prefill))
        models = min(seconds - prefill, max(0.0, self.models - before.models))
        return seconds - prefill - models, models, prefill
