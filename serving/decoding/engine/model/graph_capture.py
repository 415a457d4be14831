"""Captures passes as CUDA graphs, which replay hundreds of kernel launches as one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from suffolk.serving.decoding.engine.model.pass_result import PassResult


@dataclass(slots=True)
class GraphMemory:
    """The memory that the graphs of one cache share. This is safe, because only one graph runs at a time.

    Attributes:
        rows: the most rows of any graph.
        wanted: the most logits of any graph.
        pool: torch's memory pool.
        stream: the stream of all captures. There is one, because libraries keep work space for every stream.
        result: the output of all graphs; None before the first capture.
    """

    rows: int
    wanted: int
    pool: Any
    stream: torch.cuda.Stream
    result: PassResult | None = None

    @staticmethod
    def on(device: torch.device, rows: int, wanted: int) -> GraphMemory:
        with torch.cuda.device(device):
            stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's own
            return GraphMemory(rows, wanted, torch.cuda.graph_pool_handle(), stream)


@dataclass(frozen=True, slots=True)
class CapturedPass:
    """A captured pass. The next graph of the same memory overwrites its result."""

    graph: torch.cuda.CUDAGraph
    result: PassResult

    def replay(self) -> PassResult:
        self.graph.replay()
        return self.result


@torch.inference_mode()
def capture_pass(compute: Callable[[], PassResult], memory: GraphMemory, device: torch.device) -> CapturedPass:
    """Capture ``compute``, and the copy of its result to the memory that all graphs share.

    ``compute`` reads its inputs from memory that stays. It also runs before the capture, so the inputs must be valid.

    Raises:
        RuntimeError: the model does something that cannot be captured, such as a copy to the host.
    """
    with torch.cuda.device(device):
        memory.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(memory.stream):
            found = compute()
            if memory.result is None:
                memory.result = found.empty(memory.rows, memory.wanted)
        torch.cuda.current_stream().wait_stream(memory.stream)
    rows = 0 if found.features is None else len(found.features)
    result = memory.result.head(rows, len(found.logits))
    return CapturedPass(capture_graph(lambda: result.copy_(compute()), memory, device), result)


@torch.inference_mode()
def capture_graph(compute: Callable[[], None], memory: GraphMemory, device: torch.device) -> torch.cuda.CUDAGraph:
    """Capture ``compute``, which also writes its results to memory that stays. Inputs and errors: as for ``capture_pass``."""
    with torch.cuda.device(device):
        memory.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(memory.stream):
            compute()  # lets libraries allocate their work space
        torch.cuda.current_stream().wait_stream(memory.stream)
        graph = torch.cuda.CUDAGraph()
        # thread_local: other threads may use the device during the capture
        with torch.cuda.graph(graph, pool=memory.pool, stream=memory.stream, capture_error_mode="thread_local"):
            compute()
    return graph
