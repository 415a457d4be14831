"""Runs ``suffolk`` in processes that are forked from one that has imported the libraries already.

Python, torch and transformers take four seconds to start, and most commands of tests take less.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.support.fork_server import ForkServer
from tests.support.forked_process import ForkedProcess
from tests.support.processes import Running, serving

IMPORTED = (
    "transformers.models.llama.modeling_llama",
    "matplotlib.figure",
    "suffolk.benchmarks.batch.measure",
    "suffolk.benchmarks.worker.measure",
    "suffolk.serving.worker.server",
    "tests.support.quick_costs",
)


@cache
def _server() -> ForkServer:
    """It ends with this process, whose pipe it reads."""
    return ForkServer(*IMPORTED).__enter__()


def suffolk(*arguments: str | Path, function: str = "suffolk.cli.main:main") -> subprocess.CompletedProcess[str]:
    """Run the command in the root of the repository, with the environment variables of this process.

    ``function``: what takes the words, as MODULE:NAME.
    """
    words = [str(each) for each in arguments]
    ending = _server().run(words, function=function)
    return subprocess.CompletedProcess(words, ending.code, ending.output, ending.errors)


def start(*words: str, function: str = "suffolk.cli.main:main") -> ForkedProcess:
    """Start a command. ``function``: what takes the words, as MODULE:NAME."""
    return ForkedProcess(_server(), words, function)


@contextmanager
def running(*words: str, function: str = "suffolk.cli.main:main") -> Iterator[Running]:
    """Start a server, as ``tests.support.processes.running`` does. ``function``: as of ``start``."""
    with serving(start(*words, function=function)) as server:  # type: ignore[arg-type]
        yield server
