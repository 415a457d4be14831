"""Steps that end on the device give the tokens and the cache of steps that end on the host, in Triton's interpreter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

import tests.support.interpreted_kernels  # noqa: F401
from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.engine.loop.drafter import GeneratedLogits
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.step import Step
from suffolk.serving.decoding.engine.loop.step_loop import StepLoop
from suffolk.serving.decoding.engine.loop.verify_all_planner import VerifyAllPlanner
from suffolk.serving.decoding.engine.model import device_step, graph_pass, passes
from suffolk.serving.decoding.engine.model.device_step import (
    KINDS,
    ON_HOST,
    SETTINGS,
    UNDECIDED,
    DeviceStep,
    Drafts,
    Walks,
)
from suffolk.serving.decoding.engine.model.graph_pass import GraphPasses
from suffolk.serving.decoding.engine.model.kv_cache import KVCache
from suffolk.serving.decoding.engine.model.pass_result import PassResult
from suffolk.serving.decoding.engine.model.row_attention import RowTables
from suffolk.serving.decoding.engine.model.row_plan import Numbers, Sizes, plan_rows
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout, chain, lay_out
from suffolk.serving.decoding.engine.sampling.candidates import GUESS
from suffolk.serving.decoding.engine.sampling.row_sampling import CUT, WHOLE, row_settings, sample_rows
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.decoding.engine.sampling.verification.match import accept
from tests.support.drafters import MadeUpDrafter, alone, knowing, random_tree, tree
from tests.support.examples import examples
from tests.support.tiny_models import VOCAB, tiny_model

PROMPT = [(7 * number) % VOCAB for number in range(12)]


def small_target(**changes: Any) -> Target:
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16} | changes
    return Target.wrap(tiny_model(**sizes).float(), accelerate=False)


TARGET = small_target()


def caches(slots: int, capacity: int, seed: int) -> list[KVCache]:
    """Two equal caches, with random rows."""
    found = [TARGET.new_cache(slots, capacity) for _ in range(2)]
    lengths = np.random.default_rng(seed).integers(1, 5, slots)
    for cache in found:
        torch.manual_seed(seed)
        cache.lengths[:] = lengths
        for slab in cache._slabs.values():
            slab.normal_()
    return found


def greedy(rows: int) -> Numbers:
    return np.zeros((SETTINGS, rows), np.int64)


class Ends:
    """The ends of steps over given samples, without a model."""

    def __init__(self, cache: KVCache, rows: int, wanted: int) -> None:
        parts = Sizes(1).most_parts(rows, cache.capacity)
        self.cache, self.rows, self.parts = cache, rows, parts
        self.sampled = torch.zeros(wanted, dtype=torch.int64)
        extra = DeviceStep.extra(wanted)
        self.tables = RowTables(rows, wanted, parts, cache.spare, torch.device("cpu"), extra)
        self.step = DeviceStep(self.tables, cache, lambda logits, *_: self.sampled[: len(logits)], (8, wanted))

    def run(self, slots: Sequence[int], layouts: Sequence[TreeLayout], drafts: Drafts, chosen: Any) -> Walks:
        plan = plan_rows(self.cache.lengths, self.cache.capacity, slots, layouts, Sizes(1), self.parts)
        self.step.load(drafts)
        self.tables.load(plan, chosen, self.rows)
        return self.step.run(torch.zeros((len(self.sampled), 1)), drafts)


@examples(50)
@given(st.integers(0, 2**32))
def test_walks_and_moves_equal_those_of_the_host(seed: int) -> None:
    """Trees with equal siblings, single rows, parts of prompts, and requests whose rows the host verifies."""
    rng = np.random.default_rng(seed)
    requests, (cache, expected) = int(rng.integers(1, 4)), caches(4, 20, seed)
    ends = Ends(cache, 16, 16)
    for _ in range(2):
        slots = rng.permutation(4)[:requests].tolist()
        trees = [random_tree(rng, int(rng.integers(0, 5)), 3) for _ in slots]
        layouts, chosen, counts, parents, kinds, begin = [], [], [], [], [], 0
        for draft in trees:
            kind = rng.choice(["tree", "host", "reading", "read"], p=[0.6, 0.2, 0.1, 0.1])
            layout = lay_out(int(rng.integers(3)), draft) if kind in ("tree", "host") else chain(rng.integers(0, 3, 3))
            wanted = {"reading": 0, "read": 1}.get(kind, len(layout))
            own = [-1, *(draft.parents + 1)] if wanted > 1 else [-1] * wanted
            parents += [ON_HOST] * wanted if kind == "host" else own
            chosen += range(begin + len(layout) - wanted, begin + len(layout))
            counts += [wanted] if wanted else []
            layouts.append(layout)
            kinds.append(kind)
            begin += len(layout)
        ends.sampled[:] = torch.from_numpy(rng.integers(0, 3, len(ends.sampled)))
        drafts = Drafts(np.array(counts, np.int64), np.array(parents, np.int64), greedy(len(parents)))
        walks = ends.run(slots, layouts, drafts, np.array(chosen, np.int64))
        kept, placed, at = [], [], 0
        for draft, layout, kind in zip(trees, layouts, kinds, strict=True):
            kept.append(np.arange(len(layout) if kind in ("reading", "read") else 1))
            placed.append(False)
            if kind == "reading":
                continue
            first, placed[-1] = walks.begins[at], kind != "host"
            if kind == "host":
                assert (walks.counts[at], walks.tokens[at]) == (0, UNDECIDED)
            else:
                sampled = ends.sampled[first : first + counts[at]].numpy()
                path = accept(draft.tokens, draft.parents, sampled) if kind == "tree" else np.empty(0, np.int64)
                assert walks.nodes[first + 1 : first + 1 + walks.counts[at]].tolist() == path.tolist()
                assert walks.tokens[at] == sampled[path[-1] + 1 if len(path) else 0]
                kept[-1] = np.concatenate([kept[-1], path + 1])
            at += 1
        cache.keep(slots, kept, np.array(placed))
        expected.keep(slots, kept)
        assert (cache.lengths == expected.lengths).all()
        assert_equal_texts(cache, expected)


def assert_equal_texts(cache: KVCache, expected: KVCache) -> None:
    for slot, length in enumerate(expected.lengths.tolist()):
        rows = slice(slot * cache.capacity, slot * cache.capacity + length)
        for slab, other in zip(cache._slabs.values(), expected._slabs.values(), strict=True):
            assert torch.equal(slab[:, rows], other[:, rows])


def test_a_path_that_ends_undecided_is_left_to_the_host() -> None:
    """No row moves, because the host verifies the whole draft again. An undecided row beside the path changes nothing."""
    cache, expected = caches(1, 20, 0)
    ends = Ends(cache, 8, 8)
    layout = lay_out(0, tree([7, 1, 9, 2], [-1, -1, 1, 1]))
    for undecided, counts in ((3, [1]), (2, [0])):
        ends.sampled[:5] = torch.tensor([1, 0, 6, 6, 6])
        ends.sampled[undecided] = UNDECIDED
        walks = ends.run([0], [layout], Drafts(np.array([5]), np.array([-1, 0, 0, 2, 2]), greedy(5)), np.arange(5))
        assert walks.counts == counts
        assert (walks.tokens == [UNDECIDED]) == (undecided == 2)
        kept = [np.array([0, 2])]
        for each, placed in ((cache, undecided == 3), (expected, False)):
            each.keep([0], kept, np.array([placed]))
        assert_equal_texts(cache, expected)


def test_a_greedy_step_has_few_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside sampling: one kernel that walks, and a gather and a copy for each slab of layers."""
    cache = caches(2, 20, 0)[0]
    ends, logits = Ends(cache, 8, 8), torch.zeros((8, 1))
    launched: list[Any] = []

    class Kernel:
        def __getitem__(self, grid: Any) -> Any:
            return lambda *args, **options: launched.append(grid)

    monkeypatch.setattr(device_step.kernels(), "walk_kernel", Kernel())
    assert len(cache._slabs) == 1
    assert operations(lambda: ends.step._compute(logits, 0)) == {"index": 1, "index_put_": 1}
    assert launched == [(8,)]


def test_a_sampling_step_has_a_fixed_number_of_operations() -> None:
    for settings, kind, most in (
        (SamplingSettings(temperature=1.0, top_p=0.9), CUT, 90),
        (SamplingSettings(temperature=1.0), WHOLE, 135),
    ):
        numbers = row_settings(settings, VOCAB, 5)
        assert numbers is not None
        for rows in (1, 32):
            logits, table = torch.zeros((rows, VOCAB)), torch.from_numpy(np.repeat(numbers[:, None], rows, 1))
            positions = torch.arange(rows)
            found = operations(partial(sample_rows, logits, positions, table, kind))
            assert found.total() < most


class Operations(TorchDispatchMode):
    """Counts operations that are not views."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not function.is_view:
            self.found[function.__name__.split(".")[0]] += 1
        return function(*args, **(kwargs or {}))


def operations(compute: Callable[[], object]) -> Counter[str]:
    with Operations() as counted:
        compute()
    return counted.found


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes milliseconds for a row."""
    monkeypatch.setattr(graph_pass, "ROWS", (2, 6, 10, 14, 18, 22, 26, 30))
    monkeypatch.setattr(graph_pass, "MOST_WANTED", 28)
    monkeypatch.setattr(passes, "_problem", lambda *_: None)


class Ways(GraphPasses):
    """Graph passes that nothing compiles. Each step ends where ``way(number)`` says: on the device or the host.

    Attributes:
        ended: requests and those of them that the device verified, of each step on the device.
    """

    way: Callable[[int], bool]

    def __init__(self, target: Target, cache: KVCache, layers: Any, **options: Any) -> None:
        super().__init__(target, cache, layers, **(options | {"is_compiled": False}))
        self._number = 0
        self.ended: list[tuple[int, int]] = []

    @property
    def has_steps(self) -> bool:
        self._number += 1
        return type(self).way(self._number)

    def step(self, slots: Any, layouts: Any, wanted: Any, drafts: Drafts) -> Any:
        read, walks = super().step(slots, layouts, wanted, drafts)
        self.ended.append((len(walks.tokens), sum(token != UNDECIDED for token in walks.tokens)))
        return read, walks


MIXED = [
    SamplingSettings(5),
    SamplingSettings(5, temperature=0.8, seed=3),
    SamplingSettings(5, temperature=1.2, top_k=9, top_p=0.8, min_p=0.02, seed=4),
    SamplingSettings(5, temperature=0.7, presence_penalty=0.5, seed=5),
    SamplingSettings(5, logprobs=2),
    SamplingSettings(5, prompt_logprobs=0),
    SamplingSettings(5, temperature=0.9, verification="typical", seed=6),
    SamplingSettings(5, stop_token_ids=(5, 17)),
]
DEVICE = 4
"""Requests of ``MIXED`` that the device may verify."""


class Learner(MadeUpDrafter):
    """Drafts nothing, and records the logits that it learns from."""

    reads_logits = True

    def __init__(self) -> None:
        super().__init__(lambda request: DraftTree.empty())
        self.learned: list[torch.Tensor] = []

    def learn_logits(self, generated: Sequence[GeneratedLogits]) -> None:
        self.learned += [each.logits.clone() for each in generated]


def run(
    target: Target,
    monkeypatch: pytest.MonkeyPatch,
    way: Callable[[int], bool],
    settings: Sequence[SamplingSettings],
    learner: Learner | None = None,
) -> tuple[list[list[Step]], Ways, KVCache]:
    """Decode ``settings`` with random drafts that often hold the answer; some prompts are read beside other requests."""
    monkeypatch.setattr(Ways, "way", staticmethod(way), raising=False)
    monkeypatch.setattr(passes, "GraphPasses", Ways)
    rng, requests = np.random.default_rng(8), []
    drafters: dict[str, Any] = {}
    for number, each in enumerate(settings):
        answer = alone(target, PROMPT[: 4 + number], SamplingSettings(5, each.temperature, each.top_k, seed=each.seed))
        drafters[str(number)] = knowing(4 + number, answer, 2, rng, target.vocab_size)
        drafter = "" if number == 0 else str(number)
        keeps = learner is not None and number == 2
        requests.append(Request(number + 1, target, PROMPT[: 4 + number], each, drafter, 8, keep_logits=keeps))
    if learner is not None:
        drafters["1"] = learner
    loop = StepLoop(target, drafters, VerifyAllPlanner(), len(settings), 40, "graph")
    steps: dict[int, list[Step]] = {request.number: [] for request in requests}
    waiting = list(requests)
    while waiting or loop.running:
        for _ in range(4):  # join little by little
            if waiting:
                loop.join(waiting.pop(0))
        for request, step in loop.step():
            assert isinstance(step, Step), step
            steps[request.number].append(step)
    loop.cache.lengths[:] = [request.length - 1 for request in requests]
    special = loop._passes._special
    assert isinstance(special, Ways)
    return list(steps.values()), special, loop.cache


def test_requests_of_all_kinds_get_the_same_steps_either_way(few_rows: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal tokens, sources, log-probabilities and accepted drafts in each step, and equal rows of the cache."""
    expected, host, cache = run(TARGET, monkeypatch, lambda number: False, MIXED)
    assert not host.ended
    found, device, other = run(TARGET, monkeypatch, lambda number: True, MIXED)
    mixed, _, third = run(TARGET, monkeypatch, lambda number: number % 3 != 0, MIXED)
    assert found == expected
    assert mixed == expected
    for each in (other, third):
        assert_equal_texts(each, cache)
    assert max(verified for _, verified in device.ended) == DEVICE
    assert max(requests for requests, _ in device.ended) == len(MIXED)
    assert sum(len(step.tokens) > 1 for steps in found[1:3] for step in steps) > 1


def test_logits_that_are_learned_or_kept_are_read_on_the_host(few_rows: None, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    for way in (False, True):
        learner = Learner()
        steps, special, _ = run(TARGET, monkeypatch, lambda number, way=way: way, [SamplingSettings(5)] * 3, learner)
        runs.append((steps, learner.learned, [step.logits for step in steps[2]]))
        assert {each for each in special.ended if each[0] == 3} == ({(3, 1)} if way else set())
    (expected, *logits), (found, *others) = runs
    assert found == expected
    for each, other in zip(logits, others, strict=True):
        assert len(each) >= 3
        assert all(map(torch.equal, each, other))


def test_a_flat_distribution_is_sampled_on_the_host(few_rows: None, monkeypatch: pytest.MonkeyPatch) -> None:
    target = small_target(vocab_size=GUESS + 100)
    flat = [SamplingSettings(5, temperature=50.0, top_p=0.999, seed=1), SamplingSettings(5)]
    expected, _, _ = run(target, monkeypatch, lambda number: False, flat)
    found, device, _ = run(target, monkeypatch, lambda number: True, flat)
    assert found == expected
    assert {verified for requests, verified in device.ended if requests == 2} == {1}


def test_the_steps_of_all_sizes_are_captured_first(few_rows: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for CUDA graphs: what is captured runs again, over whatever the tables hold then."""
    captured: list[int] = []

    class Graph:
        def __init__(self, compute: Callable[[], Any], *_: Any) -> None:
            self.compute, self.result = compute, compute()

        def replay(self) -> Any:
            return self.compute()

    shared: list[PassResult] = []

    class Pass(Graph):
        """Leaves its result in the memory of the first, largest one."""

        def __init__(self, compute: Callable[[], Any], *_: Any) -> None:
            super().__init__(compute)
            shared.append(self.result)
            self.result = shared[0].head(0, len(self.result.logits))

        @torch.inference_mode()
        def replay(self) -> Any:
            self.result.copy_(self.compute())
            return self.result

    def record(compute: Any, memory: object, device: object) -> Graph:
        captured.append(len(compute.args[0]))
        return Graph(compute)

    monkeypatch.setattr(graph_pass, "capture", Pass)
    monkeypatch.setattr(device_step, "record", record)
    cache, plain = (TARGET.new_cache(2, 40) for _ in range(2))
    graph, host = (GraphPasses(TARGET, each, (), is_compiled=False, sample=sample_rows) for each in (cache, plain))
    graph._memory = object()  # type: ignore[assignment]
    graph.prepare_all(list)
    sizes = [28, 26, 22, 18, 14, 10, 6, 2]
    assert captured == [size for size in sizes for _ in range(KINDS)]
    numbers = row_settings(SamplingSettings(temperature=1.0), VOCAB, 9)
    assert numbers is not None
    draft = random_tree(np.random.default_rng(1), 4, VOCAB)
    layouts, parents = [lay_out(3, draft), chain(np.arange(3))], np.array([-1, *(draft.parents + 1), -1])
    for table in (greedy(6), np.repeat(numbers[:, None], 6, 1)):
        drafts = Drafts(np.array([5, 1]), parents, table)
        (_, found), (_, expected) = (each.step([0, 1], layouts, [5, 1], drafts) for each in (graph, host))
        assert (found.counts, found.tokens) == (expected.counts, expected.tokens)
    assert len(captured) == KINDS * len(sizes)
