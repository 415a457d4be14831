"""Compares drafters on one simulated device: with plain decoding, the best fixed tree size, and a drafter that knows the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from research.command import alternating
from research.simulated_device.device import QUIET, Device, Disturbances, DraftTimes, believed, costs_like, seconds_of
from research.simulated_device.draft_model import SimulatedDraftModel
from research.simulated_device.simulation import Load, Result, simulate
from research.simulated_device.sources import KnowingDrafter, damage, take_time
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.retriever import Retriever
from suffolk.serving.decoding.drafters.hybrid.drafter import HybridDrafter
from suffolk.serving.decoding.drafters.load import make_drafter
from suffolk.serving.decoding.drafters.retrieval.retrieval_source import RetrievalSource
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.draft_budget import DraftCandidate
from suffolk.serving.decoding.engine.loop.drafter import Drafter
from suffolk.serving.decoding.engine.loop.verify_all_planner import VerifyAllPlanner
from suffolk.serving.decoding.engine.policy.planner import Planner
from suffolk.serving.decoding.replay.read import read_recordings
from suffolk.serving.decoding.replay.recording import Recording

NAMES = ("prompt-lookup", "datastore", "hybrid")
WITH_MODEL = "hybrid with a draft model"
SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Fixed tree sizes, beside none."""
TIMES = {"prompt-lookup": DraftTimes(0.0, 0.00015), "datastore": DraftTimes(0.0, 0.0005)}


@dataclass(frozen=True, slots=True)
class Case:
    """One simulated device and its load.

    Attributes:
        answers: recorded answers; one or more.
        costs: the device's true costs.
        store: datastore of the drafters that read one.
        times: seconds of the drafts of each retrieval source.
        rows_believed: factor by which the costs of further rows are measured wrong.
        useless_after: tokens of a text after which the datastore's drafts are wrong; None for never.
        model_right: share of right tokens of the draft model.
        model_speed: passes of the draft model in the time of a plain token of the target.
    """

    answers: Sequence[Recording]
    costs: CostModel
    store: Retriever | None = None
    load: Load = Load()
    times: Mapping[str, DraftTimes] = field(default_factory=lambda: TIMES)
    disturbances: Disturbances = QUIET
    rows_believed: float = 1.0
    useless_after: int | None = None
    model_right: float = 0.8
    model_speed: float = 8.0
    seed: int = 0

    def run(self, name: str | None, planner: Planner | None = None) -> Result:
        """Decode with the drafter called ``name``; None for plain decoding. ``planner``: None for the policy."""
        device = Device(self.costs, self.disturbances, self.seed)
        planner = planner or Planner(believed(self.costs, self.rows_believed))
        drafter = None if name is None else self._drafter(name, device)
        return simulate(self.answers, device, drafter, planner, self.load, self.seed)

    def _drafter(self, name: str, device: Device) -> Drafter:
        if name in ("hybrid", WITH_MODEL):
            models = [] if name == "hybrid" else [self._model(device)]
            return HybridDrafter([self._source(each, device) for each in NAMES[:2]], models)
        if name == SimulatedDraftModel.name:
            return self._model(device)
        if name == KnowingDrafter.name:
            return KnowingDrafter(self._texts())
        return self._source(name, device)

    def _model(self, device: Device) -> SimulatedDraftModel:
        costs = costs_like(self.costs, float(self.costs.measured[0]) / self.model_speed)
        return SimulatedDraftModel(
            self._texts(), self.model_right, costs, device, self.answers[0].vocab_size, self.seed
        )

    def _texts(self) -> Callable[[int], npt.NDArray[np.int32]]:
        """The text of a request by its number."""
        texts = [np.concatenate([each.prompt, each.generated]) for each in self.answers]
        return lambda number: texts[number - 1]

    def _source(self, name: str, device: Device) -> RetrievalSource:
        vocab = self.answers[0].vocab_size
        source = make_drafter(name, vocab, [] if self.store is None else [self.store])
        if not isinstance(source, RetrievalSource):
            raise InvalidArgument(f"drafter {name!r} is no retrieval source; its time cannot be simulated")
        take_time(source, seconds_of(self.times[name]), device)
        after = self.useless_after
        if name == "datastore" and after is not None:
            damage(source, lambda request: len(request.tokens) - request.prompt_tokens >= after, vocab)
        return source


@dataclass(frozen=True, slots=True)
class Compared:
    """A drafter's result, and its rate as a share of others.

    Attributes:
        speed_up: of plain decoding.
        of_best_fixed: of the best fixed tree size for this drafter, chosen afterwards.
        best_nodes: that size; 0 for plain decoding.
        of_ceiling: of a drafter that knows the answers and takes no time, with its best fixed size.
    """

    name: str
    result: Result
    speed_up: float
    of_best_fixed: float
    best_nodes: int
    of_ceiling: float


def read_answers(path: Path, limit: int | None, least_tokens: int) -> list[Recording]:
    """At most ``limit`` answers of ``least_tokens`` tokens or more, of all groups in turn. Raises InvalidArgument if none."""
    if limit is not None and limit < 1:
        raise InvalidArgument(f"--limit is {limit}; it must be 1 or more")
    answers = [each for each in read_recordings([path]) if len(each.generated) >= least_tokens]
    if not answers:
        raise InvalidArgument(f"{path}: no answer has {least_tokens} tokens or more; record longer ones")
    return alternating(answers, lambda each: each.group)[:limit]


def compare(case: Case, names: Sequence[str]) -> Iterator[Compared]:
    """The comparison of each of ``names``, in order."""
    plain = case.run(None)
    ceiling = max(case.run(KnowingDrafter.name, FixedPlanner(size)).rate for size in SIZES)
    for name in names:
        result = case.run(name)
        rates = {0: plain.rate} | {size: case.run(name, FixedPlanner(size)).rate for size in SIZES}
        best = max(rates, key=lambda size: rates[size])
        speed_up = result.rate / plain.rate
        yield Compared(name, result, speed_up, result.rate / rates[best], best, result.rate / ceiling)


class FixedPlanner(VerifyAllPlanner):
    """Verifies the ``nodes`` best nodes of each request in every step. Not thread-safe."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self._nodes = nodes

    def size_trees(self, candidates: Sequence[DraftCandidate], requests: int, rows: int, context: float) -> None:
        for each in candidates:
            each.verified += min(self._nodes, len(each.scores))
