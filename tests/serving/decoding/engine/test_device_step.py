"""Steps that end on the device give the tokens and the cache of steps that end on the host, in Triton's interpreter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

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
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout, chain, lay_out
from suffolk.serving.decoding.engine.sampling.row_sampling import CUT, WHOLE, row_settings, sample_rows
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.decoding.engine.sampling.verification.match import accept
from tests.support.drafters import random_tree, tree
from tests.support.examples import examples
from tests.support.one_layer import assert_equal_texts, one_layer
from tests.support.tiny_models import VOCAB

TARGET = one_layer()


def caches(slots: int, capacity: int, seed: int) -> list[KVCache]:
    """Two equal caches, with random rows."""
    found = [TARGET.new_cache(slots, capacity) for _ in range(2)]
    lengths = np.random.default_rng(seed).integers(1, 5, slots)
    for cache in found:
        torch.manual_seed(seed)
        cache.lengths[:] = lengths
        for slab in cache.slabs.values():
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
    assert len(cache.slabs) == 1
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

    monkeypatch.setattr(graph_pass, "capture_pass", Pass)
    monkeypatch.setattr(device_step, "capture_graph", record)
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


def test_steps_that_cannot_be_captured_end_on_the_host(
    few_rows: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("operation not permitted\nlong explanation")

    monkeypatch.setattr(graph_pass, "capture_pass", lambda compute, *_: SimpleNamespace(result=compute()))
    monkeypatch.setattr(device_step, "capture_graph", fail)
    graph = GraphPasses(TARGET, TARGET.new_cache(2, 40), (), is_compiled=False, sample=sample_rows)
    graph._memory = object()  # type: ignore[assignment]
    assert graph.has_steps
    graph.prepare_all(lambda sizes: sizes[-2:])
    assert not graph.has_steps
    assert caplog.messages == ["model LlamaForCausalLM: steps cannot end on the device (operation not permitted)"]
