"""Drafters for tests: one that knows the answer, one with random drafts, and one with invalid trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from suffolk.datastore import _native
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import Unavailable
from suffolk.serving.decoding.drafters.calibration.calibrator import Calibrator
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.draft_budget import DraftCandidate
from suffolk.serving.decoding.engine.loop.drafter import Drafter, DraftRequest, Generated
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.step import Step
from suffolk.serving.decoding.engine.loop.step_loop import StepLoop, rows_needed
from suffolk.serving.decoding.engine.loop.verify_all_planner import VerifyAllPlanner
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.log_probabilities import LogProbability
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings


class MadeUpDrafter:
    """Drafts the tree that ``make(request)`` returns, and records its observations."""

    name = "made-up"

    def __init__(self, make: Callable[[DraftRequest], DraftTree]) -> None:
        self._make = make
        self.observed: list[list[int]] = []
        self.released: list[int] = []

    def propose(self, requests: Sequence[DraftRequest]) -> list[DraftTree]:
        return [self._make(request) for request in requests]

    def observe(self, generated: Generated) -> None:
        self.observed += [tokens.tolist() for tokens in generated.values()]

    def release(self, request_id: int) -> None:
        self.released.append(request_id)

    def stats(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        pass


class Free(CostModel):
    """Costs of passes that take no time, so that a drafter's passes always pay off."""

    def __init__(self) -> None:
        super().__init__([1], [1e-30])

    def update(self, rows: int, requests: int, context: float, seconds: float) -> None:
        pass


def eager_loop(
    target: Target, drafters: Mapping[str, Drafter], slots: int = 1, capacity: int = 700, passes: str = "auto"
) -> StepLoop:
    """Create a loop that drafts in every step and verifies every node."""
    return StepLoop(target, drafters, VerifyAllPlanner(), slots, capacity, passes)


class Booked(VerifyAllPlanner):
    """Records the candidates of all steps."""

    def __init__(self) -> None:
        super().__init__()
        self.candidates: list[DraftCandidate] = []

    def record(
        self, candidates: Sequence[DraftCandidate], requests: int, rows: int, context: float, seconds: float | None
    ) -> None:
        self.candidates += candidates


class EagerDecoder:
    """Decode one request at a time with an ``eager_loop``."""

    def __init__(self, target: Target, drafter: Drafter | None, max_nodes: int = 64) -> None:
        self._target, self._max_nodes = target, max_nodes
        self._drafters = {} if drafter is None else {"one": drafter}

    def generate(self, prompt: Sequence[int], settings: SamplingSettings) -> SingleRun:
        request = Request(1, self._target, prompt, settings, next(iter(self._drafters), ""), self._max_nodes)
        loop = eager_loop(self._target, self._drafters, capacity=rows_needed(request))
        loop.join(request)
        return SingleRun(loop, request)


class SingleRun(Iterator[Step]):
    """Yield the steps of one request that runs alone."""

    def __init__(self, loop: StepLoop, request: Request) -> None:
        self._loop, self._request = loop, request
        self.stats = request.stats

    @property
    def tokens(self) -> list[int]:
        return self._request.generated

    @property
    def log_probabilities(self) -> list[LogProbability]:
        return self._request.log_probabilities

    def __next__(self) -> Step:
        while self._loop.running:
            for _, answer in self._loop.step():
                if isinstance(answer, Step):
                    return answer
                raise answer
        raise StopIteration

    def close(self) -> None:
        self._loop.leave(self._request, "closed")


def eager_decoder(target: Target, drafter: Drafter | None, max_nodes: int = 64) -> EagerDecoder:
    """Decodes one request at a time, drafting in every step and verifying every node."""
    return EagerDecoder(target, drafter, max_nodes)


def alone(target: Target, prompt: Sequence[int], settings: SamplingSettings) -> list[int]:
    """Return the target's answer in a batch of one, without a drafter."""
    run = eager_decoder(target, None).generate(prompt, settings)
    list(run)
    return run.tokens


def with_noise(request: DraftRequest, tree: DraftTree, above: int) -> DraftTree:
    """Return ``tree`` with scores reweighted by the request's noise, after ``above`` drafted tokens."""
    drafts, settings = _native.Drafts([[tree]]), request.settings
    drafts.reweight(0, len(request.tokens) + above, settings.seed, settings.temperature)
    return drafts.trees[0]


def scored(calibrator: Calibrator, tree: DraftTree) -> DraftTree:
    """Return ``tree`` with the scores of ``calibrator``."""
    drafts = _native.Drafts([[tree]])
    _native.score_drafts(drafts, [calibrator.native])
    return drafts.trees[0]


def teach(calibrator: Calibrator, tree: DraftTree, tokens: Sequence[int]) -> None:
    """Let ``calibrator`` learn from the ``tokens`` that were generated after the root of ``tree``."""
    _native.learn_drafts([(calibrator.native, _native.Drafts([[tree]]), 0, np.array(tokens, np.int32))])


def tree(tokens: Sequence[int], parents: Sequence[int], scores: Sequence[float] | None = None) -> DraftTree:
    size = len(tokens)
    values = np.ones(size) if scores is None else np.asarray(scores)
    return DraftTree(
        np.asarray(tokens, np.int32), np.asarray(parents, np.int32), values.astype(np.float32), np.ones(size, np.uint32)
    )


def random_tree(rng: np.random.Generator, size: int, vocab_size: int) -> DraftTree:
    parents = [int(rng.integers(-1, node)) for node in range(size)]
    return tree(rng.integers(0, vocab_size, size).tolist(), parents)


def knowing(
    prompt_length: int, output: Sequence[int], depth: int, rng: np.random.Generator, vocab: int
) -> MadeUpDrafter:
    """Drafts the true continuation as one branch among random ones, with its nodes scattered over the rows."""

    def make(request: DraftRequest) -> DraftTree:
        done = len(request.tokens) - prompt_length
        tokens: list[int] = []
        parents: list[int] = []
        at = -1
        for token in output[done : done + depth]:
            noise = int(rng.integers(0, 3))
            parents += [int(rng.integers(-1, len(tokens) + extra)) for extra in range(noise)]
            tokens += rng.integers(0, vocab, noise).tolist()
            tokens.append(token)
            parents.append(at)
            at = len(tokens) - 1
        return tree(tokens, parents)

    return MadeUpDrafter(make)


def lying(rng: np.random.Generator, vocab: int) -> MadeUpDrafter:
    """Alternates between random trees and all kinds of invalid trees."""

    def make(request: DraftRequest) -> DraftTree:
        good = random_tree(rng, 5, vocab)
        kinds: list[Callable[[], DraftTree]] = [
            lambda: good,
            lambda: tree([1, vocab], [-1, 0]),
            lambda: tree([1, -1], [-1, 0]),
            lambda: tree([1, 2, 3], [-1, 2, 0]),
            lambda: tree([1, 2], [-2, 0]),
            lambda: tree([1, 2], [0, 0]),
            lambda: tree([1, 2], [-1, 0], [np.nan, 1.0]),
            lambda: tree([1, 2], [-1, 0], [7.0, -1.0]),
            lambda: DraftTree(good.tokens, good.parents[:2], good.scores, good.sources),
            lambda: DraftTree(good.tokens.astype(np.float32), good.parents, good.scores, good.sources),
            lambda: DraftTree(good.tokens[None], good.parents[None], good.scores[None], good.sources[None]),
            lambda: DraftTree(good.tokens, good.parents, good.scores, good.sources, np.ones(1, np.uint64)),
            lambda: random_tree(rng, 500, vocab),
            lambda: tree([3] * 60, list(range(-1, 59))),
            lambda: tree([4] * 60, [-1] * 60),
            _raise_unavailable,
        ]
        return kinds[int(rng.integers(len(kinds)))]()

    return MadeUpDrafter(make)


def _raise_unavailable() -> DraftTree:
    raise Unavailable("the source is gone")
