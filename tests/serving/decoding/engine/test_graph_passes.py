"""Graph passes equal packed ones, in Triton's interpreter. One function serves all rows, requests and contexts."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch._dynamo.utils import counters
from torch._inductor.utils import run_and_get_code

import tests.support.interpreted_kernels  # noqa: F401
from suffolk.datastore.errors import Unsupported
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.model import graph_pass, pass_function, passes, row_attention
from suffolk.serving.decoding.engine.model.graph_pass import GraphPasses, JoinedLinear, join_layers
from suffolk.serving.decoding.engine.model.kv_cache import KVCache
from suffolk.serving.decoding.engine.model.pass_result import PassResult
from suffolk.serving.decoding.engine.model.passes import Passes
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout, chain, lay_out
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.drafters import Free, MadeUpDrafter, random_tree
from tests.support.tiny_models import VOCAB, tiny_model

PROMPT = [(7 * number) % VOCAB for number in range(20)]
KERNELS = {"attend": 3}
"""Kernels of an operator: ``row_attention.py`` writes, attends and merges."""


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes milliseconds for a row."""
    monkeypatch.setattr(graph_pass, "ROWS", (2, 6, 14))
    monkeypatch.setattr(graph_pass, "MOST_WANTED", 10)


def small_target(family: str = "llama", layers: int = 1, dtype: torch.dtype = torch.float32) -> Target:
    """One key head and two query heads, to save the interpreter's time."""
    model = tiny_model(family, num_hidden_layers=layers, num_attention_heads=2, num_key_value_heads=1, head_dim=16)
    return Target.wrap(model.to(dtype), accelerate=False)


def filled_caches(target: Target) -> list[KVCache]:
    caches = [target.new_cache(4, 40) for _ in range(2)]
    for cache in caches:
        for slot, length in ((3, 20), (1, 9)):
            target.prefill(PROMPT[:length], cache, slot)
    return caches


def mixed_rows(seed: int) -> list[TreeLayout]:
    """A tree, a chunk of a prompt, and a single row."""
    rng = np.random.default_rng(seed)
    return [lay_out(int(rng.integers(VOCAB)), random_tree(rng, 4, VOCAB)), chain(np.arange(5)), chain(np.arange(1))]


@pytest.mark.parametrize(("family", "layers"), [("llama", 1), ("gemma2", 2)])
def test_they_equal_packed_ones(family: str, layers: int) -> None:
    """Logits of some rows, and hidden states of all. A prompt's chunk wants none. Gemma 2 has windows and capped scores."""
    target = small_target(family, layers)
    caches, slots = filled_caches(target), [3, 0, 1]
    graph = GraphPasses(target, caches[0], (0, layers), is_compiled=False)
    for seed, wanted in ((0, [5, 0, 1]), (1, [2, 5, 1])):
        layouts = mixed_rows(seed)
        assert graph.fits(layouts, wanted)
        found = graph.forward(slots, layouts, wanted)
        expected = target.forward(caches[1], slots, layouts, wanted, (0, layers))
        assert found.logits.shape == expected.logits.shape
        assert (found.logits - expected.logits).abs().max() < 1e-4
        assert found.features is not None
        assert expected.features is not None
        assert (found.features - expected.features).abs().max() < 1e-4
        for cache in caches:
            cache.keep(slots, [np.arange(1), np.arange(5), np.arange(1)])


def test_what_does_not_fit_is_packed() -> None:
    graph = GraphPasses(small_target(), small_target().new_cache(1, 40), (), is_compiled=False)
    assert graph.fits([chain(np.arange(14))], [1])
    assert not graph.fits([chain(np.arange(15))], [1])
    assert not graph.fits([chain(np.arange(12))], [12])
    assert not graph.fits([TreeLayout(np.arange(1), np.ones(1, np.int64), None, np.zeros(1, np.int64))], [1])


def test_a_compiled_layer_has_few_kernels() -> None:
    """One compiled function serves all sizes. With embedding, last norm and logits, one layer has at most 14 kernels."""
    target, before = small_target(), int(counters["stats"]["unique_graphs"])
    assert join_layers(target) == 5
    caches = filled_caches(target)
    ways = [GraphPasses(target, caches[0], ()), Passes(target, caches[1], "packed")]
    _, (source,) = run_and_get_code(ways[0]._compile)
    for layouts, slots in ((mixed_rows(0), [3, 0, 1]), ([chain(np.arange(1))], [3]), ([chain(np.arange(6))], [1])):
        wanted = [min(len(layout), 3) for layout in layouts]
        found, expected = (way.forward(slots, layouts, wanted).logits for way in ways)
        assert (found - expected).abs().max() < 1e-4
    assert int(counters["stats"]["unique_graphs"]) == before + 1
    assert counters["inductor"]["fxgraph_cache_bypass"] == 0  # later starts find it in the cache
    body = source[source.index("def call(") :]
    names = re.findall(r"^ +(?:buf\d+ = )?(?:torch\.ops\.suffolk\.|extern_kernels\.)?(\w+)(?:\.default)?\(", body, re.M)
    products, fused, attends = (
        [name for name in names if pattern in name] for pattern in ("mm", "cpp_fused", "attend")
    )
    assert len(products) == 5  # queries with keys and values, output, gate with up, down; logits
    assert len([name for name in attends if name == "attend"]) == 1
    assert len(products) + len(fused) + KERNELS["attend"] <= 14


def test_joined_layers_keep_their_weights_once() -> None:
    target, other = small_target(), small_target()
    before = {name: weight.clone() for name, weight in target.model.state_dict().items()}
    assert join_layers(target) == 5
    layer = target.model.model.layers[0]
    attention = [layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj]
    for group in (attention, [layer.mlp.gate_proj, layer.mlp.up_proj]):
        assert all(isinstance(each, JoinedLinear) for each in group)
        assert len({each.weight.untyped_storage().data_ptr() for each in group}) == 1
    assert all(torch.equal(weight, before[name]) for name, weight in target.model.state_dict().items())
    assert target.model.state_dict().keys() == before.keys()
    for each in (target, other):
        each.model.generation_config.use_cache = True
    rows = [each.prefill(PROMPT, each.new_cache(1, 30)) for each in (target, other)]
    assert torch.equal(*rows)
    assert join_layers(target) == 0


def test_a_captured_pass_reads_all_else_from_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for CUDA graphs: what is captured runs again, over whatever the tables hold then."""
    captured: list[int] = []
    replayed: list[int] = []

    @dataclass
    class Graph:
        compute: Callable[[], PassResult]

        def replay(self) -> PassResult:
            result = self.compute()
            replayed.append(len(result.logits))
            return result

    def capture(compute: Callable[[], PassResult], memory: object, device: torch.device) -> Graph:
        captured.append(len(compute().logits))
        return Graph(compute)

    monkeypatch.setattr(graph_pass, "capture_pass", capture)
    target = small_target()
    caches = filled_caches(target)
    graph = GraphPasses(target, caches[0], (), is_compiled=False)
    graph._memory = object()  # type: ignore[assignment]
    graph.prepare_all(list)
    assert captured == [10, 6, 2]
    for slots, layouts in (([3, 0, 1], mixed_rows(2)), ([1], [chain(np.arange(2))])):
        wanted = [1] * len(layouts)
        graph.prepare(slots, layouts)
        found = graph.forward(slots, layouts, wanted).logits
        assert (found - target.forward(caches[1], slots, layouts, wanted).logits).abs().max() < 1e-4
    assert (captured, replayed) == ([10, 6, 2], [10, 2])


def test_an_engine_gives_the_text_of_packed_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """With random drafts, in float32; the prompt is read by graph passes too. All shapes are prepared at the start."""
    monkeypatch.setattr(passes, "GraphPasses", uncompiled)
    prepared: list[int] = []
    monkeypatch.setattr(uncompiled, "_prepare", lambda self, rows: prepared.append(rows))
    target, texts = small_target(), []
    for kind in ("packed", "graph"):
        rng = np.random.default_rng(3)
        drafter = MadeUpDrafter(lambda request, rng=rng: random_tree(rng, 3, VOCAB))
        with Engine(target, {"random": drafter}, Free(), slots=2, capacity=40, passes=kind) as engine:
            generations = [
                engine.generate(PROMPT[:count], SamplingSettings(max_new_tokens=4), "random", 3) for count in (5, 2)
            ]
            texts.append([list(generation) and list(generation.tokens) for generation in generations])
    assert texts[0] == texts[1]
    assert prepared[:5] == [14, 2, 14, 6, 2]  # the two checks, then all


class uncompiled(GraphPasses):  # noqa: N801
    """Graph passes that nothing compiles."""

    def __init__(
        self, target: Any, cache: KVCache, layers: tuple[int, ...], is_compiled: bool = False, sample: Any = None
    ) -> None:
        super().__init__(target, cache, layers, is_compiled=False, sample=sample)


def test_a_model_that_cannot_be_compiled_gets_graph_passes_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: Any, *arguments: Any) -> Any:
        raise RuntimeError("no compiler\nlong explanation")

    monkeypatch.setattr(pass_function.CompiledFunction, "__call__", fail)
    target = small_target()
    with caplog.at_level(logging.WARNING):
        found = Passes(target, target.new_cache(1, 24), "graph")
        Passes(target, target.new_cache(1, 24), "graph")
    assert found.kind == "uncompiled graph"
    assert [record.getMessage() for record in caplog.records] == [
        "model LlamaForCausalLM: graph passes fail (no compiler); using uncompiled graph ones"
    ]


def test_a_model_that_the_kernels_do_not_serve_gets_captured_passes(caplog: pytest.LogCaptureFixture) -> None:
    target = small_target(dtype=torch.float64)
    with caplog.at_level(logging.WARNING):
        assert Passes(target, target.new_cache(1, 24), "graph").kind == "captured"
    assert [record.getMessage() for record in caplog.records] == [
        "model LlamaForCausalLM: graph passes fail (their kernels have no float64); using captured ones"
    ]


def test_kernels_that_fail_are_replaced(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def __getitem__(self, grid: Any) -> Any:
            raise row_attention.kernels().TritonError("out of resource: shared memory")

    monkeypatch.setattr(row_attention.kernels(), "attend_kernel", Broken())
    monkeypatch.setattr(passes, "GraphPasses", uncompiled)
    target = small_target()
    with caplog.at_level(logging.WARNING):
        assert Passes(target, target.new_cache(1, 24), "graph").kind == "captured"
    assert "graph passes fail (Triton: out of resource: shared memory)" in caplog.text


def test_without_cuda_and_interpreter_they_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_attention, "is_interpreted", lambda: False)
    target = small_target()
    with pytest.raises(Unsupported, match="graph passes are for CUDA, and it is on the cpu; use packed passes"):
        Passes(target, target.new_cache(1, 24), "graph")
