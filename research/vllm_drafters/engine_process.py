"""Starts an engine of ``engine.py`` and sends it requests."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from suffolk.datastore.errors import Unavailable

Ids = list[int]


class EngineProcess:
    """One running engine. Not thread-safe."""

    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        self.name = name
        self._process = process

    def generate(self, prompts: Sequence[Ids], max_tokens: int) -> dict[str, Any]:
        """Generate answers to ``prompts`` in one batch; see ``engine.py``.

        Raises Unavailable if the engine has ended.
        """
        self.send(prompts, max_tokens)
        return self.receive()

    def send(self, prompts: Sequence[Ids], max_tokens: int) -> None:
        """Start generating, without waiting for the answers."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"prompts": list(prompts), "max_tokens": max_tokens}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._ended() from error

    def receive(self) -> dict[str, Any]:
        """The answers to the last ``send``."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _ended(self) -> Unavailable:
        return Unavailable(
            f"vLLM's engine {self.name} has ended with code {self._process.wait()}; see its messages above"
        )


@contextlib.contextmanager
def engine(name: str, threads: int, **arguments: Any) -> Iterator[EngineProcess]:
    """Run an engine during the block. ``arguments``: for ``vllm.LLM``. Raises Unavailable if it does not start."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    command = [sys.executable, "-m", "research.vllm_drafters.engine"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        running = EngineProcess(name, process)
        assert process.stdin is not None
        process.stdin.write(json.dumps(arguments) + "\n")
        process.stdin.flush()
        running.receive()
        yield running
    finally:
        process.kill()
        process.wait()
