"""Decodes in pieces for ``research.compare_commits``, with the Suffolk of the checkout in PYTHONPATH.

It is run by its path, also with old checkouts, so it imports only parts of the engine that change little. It reads one JSON
object a line from stdin and answers with one.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from suffolk.serving.decoding.engine.loop.request import Request
    from suffolk.serving.decoding.engine.loop.step_loop import StepLoop


class Worker:
    """A target and a step loop for each drafter, which decodes one text at a time."""

    def __init__(self, options: dict[str, Any]) -> None:
        """Load the model and measure or read its costs. ``options``: as ``research.compare_commits`` sends them."""
        import torch

        import suffolk

        step_loop = _loop_module("step_loop").StepLoop

        if options["threads"] is not None:
            torch.set_num_threads(options["threads"])
        self._target = suffolk.Target.load(options["model"], options["dtype"], options["device"])
        stores: list[Any] = [suffolk.open(each, None if "://" in each else "warm") for each in options["datastores"]]
        costs = suffolk.find_costs(self._target, 1, None if options["costs"] is None else Path(options["costs"])).costs
        self._max_nodes = options["max_nodes"]
        self._loops: dict[str, StepLoop] = {}
        for name in options["drafters"]:
            drafter = suffolk.make_drafter(name, self._target.vocab_size, stores)
            drafters = {} if drafter is None else {name: drafter}
            self._loops[name] = step_loop(self._target, drafters, costs, 1, options["capacity"])
        self._requests: dict[str, Request] = {}
        self._texts = 0

    def begin(self, drafter: str, prompt: list[int], settings: dict[str, Any]) -> dict[str, Any]:
        """Read ``prompt`` and generate its first token."""
        from suffolk import SamplingSettings

        self._texts += 1
        name = "" if drafter == "none" else drafter
        make, settled = _loop_module("request").Request, SamplingSettings(**settings)
        request = make(self._texts, self._target, prompt, settled, name, self._max_nodes)
        self._loops[drafter].join(request)
        self._requests[drafter] = request
        while not request.stats.tokens:
            self._step(drafter)
        return self._state(request)

    def run(self, drafter: str, tokens: int) -> dict[str, Any]:
        """Generate up to ``tokens`` tokens of the text."""
        request = self._requests[drafter]
        before, steps = request.stats.tokens, request.stats.steps
        process_begin, begin = time.process_time(), time.perf_counter()
        while request.stats.tokens < tokens and not request.stats.finish:
            self._step(drafter)
        seconds, process_seconds = time.perf_counter() - begin, time.process_time() - process_begin
        return self._state(request) | {
            "tokens": request.stats.tokens - before,
            "steps": request.stats.steps - steps,
            "seconds": seconds,
            "process_seconds": process_seconds,
        }

    def _step(self, drafter: str) -> None:
        for _, result in self._loops[drafter].step():
            if isinstance(result, Exception):
                raise result

    @staticmethod
    def _state(request: Request) -> dict[str, Any]:
        finish = request.stats.finish
        return {"length": request.stats.tokens, "finish": finish, "text": request.generated if finish else None}


def _loop_module(name: str) -> Any:
    """A module of the engine's loop, where this checkout has it."""
    try:
        return importlib.import_module(f"suffolk.serving.decoding.engine.loop.{name}")
    except ModuleNotFoundError:  # before 83afb269
        return importlib.import_module(f"suffolk.serving.engine.loop.{name}")


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not mix with the replies
    # the other modules of this folder must not hide installed ones
    sys.path[:] = [each for each in sys.path if Path(each).resolve() != Path(__file__).resolve().parent]
    serve(sys.stdin, replies)


def serve(orders: IO[str], replies: IO[str]) -> None:
    """Answer every line of ``orders``. The first has the options."""

    def reply(answer: dict[str, Any]) -> None:
        replies.write(json.dumps(answer) + "\n")
        replies.flush()

    worker = Worker(json.loads(orders.readline()))
    reply({"package": str(Path(sys.modules["suffolk"].__file__ or "").resolve())})
    for line in orders:
        order = json.loads(line)
        reply(worker.begin(**order) if order.pop("order") == "begin" else worker.run(**order))


if __name__ == "__main__":
    main()
