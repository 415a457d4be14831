"""Lets engines of this process measure the costs of passes for a shorter time, and processes of their own read them.

Tiny models have quick passes.
"""

from __future__ import annotations

from pathlib import Path

from suffolk.serving.decoding.engine.costs import cost_measurement
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.cost_store import CostKey, save_costs
from suffolk.serving.decoding.engine.model.target import Target

cost_measurement.QUICK_SECONDS = 0.4


def known_costs(model: Path, seconds: float = 0.001) -> Path:
    """A file of costs of the model in this folder; all passes cost the same, at first."""
    path = model.with_suffix(".costs.json")
    save_costs(CostModel([1, 64], [seconds, seconds]), CostKey.of(Target.load(str(model))), path)
    return path
